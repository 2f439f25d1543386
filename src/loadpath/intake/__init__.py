"""Files → captures: opening, unpacking, cleaning, cutting a mixed paste into captures."""
