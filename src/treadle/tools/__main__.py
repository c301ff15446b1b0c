"""`python -m treadle.tools`: the `treadle` command where no script of that name is installed."""

from treadle.tools.main import main

main()
