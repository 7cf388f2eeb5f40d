"""The table of results in README.md, between two comments."""
from pathlib import Path

from mistakes import UsageError

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def replaced(text: str, table: str) -> str:
    """`text` with `table` between the markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UsageError(f"README.md needs one line {BEGIN} and below it one line {END}; "
                         "put them where the table belongs")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def rewrite(path: Path, table: str) -> None:
    path.write_text(replaced(path.read_text(), table))
