from lastword.cli import main

main()
