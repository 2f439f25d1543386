"""Planning as a service: from what a person typed to a report on a start that has not happened yet."""
