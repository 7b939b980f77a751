"""`dbt debug`, and what dbt finds of tables: `dbt_debug.py HOST PORT`. Prints `ok` if dbt is content."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

host, port = sys.argv[1:]
os.environ.update(
    KUMIKI_HOST=host, KUMIKI_PORT=port, DBT_SEND_ANONYMOUS_USAGE_STATS="false", DO_NOT_TRACK="1"
)

from dbt.cli.main import dbtRunner

with tempfile.TemporaryDirectory() as folder:
    # dbt writes its log and its target beside its project.
    project = Path(folder) / "project"
    shutil.copytree(Path(__file__).parent / "dbt", project)
    place = ["--project-dir", str(project), "--profiles-dir", str(project)]
    debugged = dbtRunner().invoke(["debug", *place])
    assert debugged.success, debugged.exception
    # A question to the database, by which dbt lists and reads tables.
    shown = dbtRunner().invoke(["show", "--inline", "select r_name from region order by 1", *place])
    assert shown.success, shown.exception
    names = [row[0] for row in shown.result.results[0].agate_table.rows]
    assert names[:2] == ["AFRICA", "AMERICA"], names
print("ok")
