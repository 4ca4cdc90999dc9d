"""Reads one export with several readers, and reports cells that differ from the values that were sent.

Usage: compare.py FOLDER, which has rows.ndjson, rows.csv and excel.csv of the same rows in one time zone. The JSON
lines are compared with the results of the standard library's csv, pandas, DuckDB and LibreOffice.
"""

import csv
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import openpyxl
import pandas

NUMBERS = {"pid", "spreadid", "revenue"} | {f"contributor{n}_spreadid" for n in (1, 2, 3)}

# Locales in which a spreadsheet detects numbers, dates and booleans, with their Windows ids.
LANGUAGES = {"en-US": 1033, "de-DE": 1031, "fr-FR": 1036, "sv-SE": 1053, "ja-JP": 1041, "zh-CN": 2052, "zh-TW": 1028}
# In these locales `1234.50` is not a number, and stays text.
DECIMAL_COMMA = {"de-DE", "fr-FR", "sv-SE"}
FORMULA_SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
# A formula after a list separator that is not the comma.
INNER_FORMULA = re.compile(f"([;|\t\r\n][\\s\"]*)([{re.escape(FORMULA_SIGNS)}])")


def main():
    folder = Path(sys.argv[1])
    lines = (folder / "rows.ndjson").read_text().split("\n")
    assert lines.pop() == "", "the last line ends with a line break"
    events = [json.loads(line) for line in lines]
    names = list(events[0])
    expected = [[text(event[name]) for name in names] for event in events]
    data = folder / "rows.csv"
    check("csv", names, expected, by_csv(data))
    check("pandas", names, expected, by_pandas(data))
    check("DuckDB", names, expected, by_duckdb(data))
    columns = "/".join(f"{column}/2" for column in range(1, len(names) + 1))
    sheet = by_libreoffice(data, f"44,34,76,1,{columns},0,false,false")
    sheet = [[as_cell(cell) for cell in row] for row in sheet]
    check("LibreOffice", names, [[in_cell(cell) for cell in row] for row in expected], sheet)
    for language in LANGUAGES:
        sheet = by_libreoffice(folder / "excel.csv", f"44,34,76,1,,{LANGUAGES[language]},false,true")
        check_excel(language, names, events, sheet)
    print(f"{len(expected)} rows of {len(names)} columns")


def text(value):
    if value is None:
        return ""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def check(reader, names, expected, found):
    assert found[0] == names, f"{reader}: {found[0]}"
    assert len(found) == len(expected) + 1, f"{reader}: {len(found) - 1} rows"
    for row, (want, have) in enumerate(zip(expected, found[1:])):
        for name, cell, seen in zip(names, want, have):
            assert seen == cell, f"{reader}, row {row}, {name}: {seen!r} for {cell!r}"


def by_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, strict=True))


def by_pandas(path):
    frame = pandas.read_csv(path, dtype=str, keep_default_na=False)
    return [list(frame.columns)] + frame.values.tolist()


def by_duckdb(path):
    query = duckdb.sql(
        f"from read_csv('{path}', all_varchar = true, header = true, delim = ',', "
        "quote = '\"', escape = '\"', auto_detect = false, "
        f"columns = {{{', '.join(repr(name) + ': ' + repr('VARCHAR') for name in header(path))}}})"
    )
    return [query.columns] + [[cell or "" for cell in row] for row in query.fetchall()]


def header(path):
    with open(path, newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def by_libreoffice(path, options):
    command = ["soffice", f"-env:UserInstallation=file://{path.parent}/office", "--headless"]
    command += [f"--infilter=CSV:{options}", "--convert-to", "xlsx", "--outdir", path.parent / "sheets", path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    book = openpyxl.load_workbook(path.parent / "sheets" / f"{path.stem}.xlsx", data_only=True)
    return [list(row) for row in book.active.iter_rows(values_only=True)]


def as_cell(cell):
    return "" if cell is None else str(cell)


def in_cell(text):
    """Cells of a spreadsheet have only one kind of line break."""
    return text.replace("\r\n", "\n")


def check_excel(language, names, events, found):
    assert found[0] == names, found[0]
    assert len(found) == len(events) + 1, len(found)
    for row, (event, have) in enumerate(zip(events, found[1:])):
        for name, seen in zip(names, have):
            want = in_sheet(language, name, event[name])
            assert seen == want, f"sheet in {language}, row {row}, {name}: {seen!r} for {want!r}"


def in_sheet(language, name, value):
    """Returns the expected cell of a spreadsheet: text, number or time, and never a formula."""
    if value is None:
        return None
    if name.endswith("_time"):
        time = datetime.datetime.fromisoformat(value)
        return time.replace(tzinfo=None, microsecond=0)
    if name in NUMBERS:
        return value if name != "revenue" or language in DECIMAL_COMMA else float(value)
    cell = INNER_FORMULA.sub(r"\1'\2", in_cell(text(value)))
    return "'" + cell if cell[0] in "\t\r\n" or cell.lstrip()[0] in FORMULA_SIGNS else cell


main()
