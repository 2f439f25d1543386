from loadpath.cli.main import main

main()
