"""Read-atomic transactions with Cassandra's Python driver: host, port, version of the protocol.

Writes to app.notes (k text PRIMARY KEY, v bigint, kumiki_txn blob) and app.pairs (p text, c text,
v bigint, kumiki_txn blob, PRIMARY KEY (p, c)), and fails if a step does not do what it should.
"""

import sys

from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.query import BatchStatement, SimpleStatement

host, port, version = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
profile = ExecutionProfile(consistency_level=ConsistencyLevel.QUORUM, request_timeout=60)
cluster = Cluster(
    [host],
    port=port,
    protocol_version=version,
    execution_profiles={EXEC_PROFILE_DEFAULT: profile},
)
session = cluster.connect("app")


def rows(result):
    return sorted(tuple(row) for row in result)


def refused(statement, words):
    try:
        session.execute(statement)
    except InvalidRequest as error:
        assert words in str(error), error
        return
    raise AssertionError(f"{statement} is not refused")


insert = session.prepare("INSERT INTO notes (k, v) VALUES (?, ?)")
pair = session.prepare("UPDATE pairs SET v = ? WHERE p = ? AND c = ?")
delete = session.prepare("DELETE FROM notes WHERE k = ?")
several = session.prepare("SELECT k, v FROM notes WHERE k IN ?")

# A batch of prepared statements, over two tables.
batch = BatchStatement()
batch.add(insert, ("x", 1))
batch.add(insert, ("y", None))
batch.add(pair, (3, "p", "c"))
session.execute(batch)
assert rows(session.execute(several, [["x", "y", "absent"]])) == [("x", 1), ("y", None)]
one = session.execute("SELECT v AS value FROM pairs WHERE p = 'p' AND c = 'c'")
assert [row.value for row in one] == [3]

# A batch of texts with values, and a batch as one text.
batch = BatchStatement()
batch.add(SimpleStatement("INSERT INTO notes (k, v) VALUES (%s, %s)"), ("y", 20))
batch.add(delete, ("x",))
session.execute(batch)
assert rows(session.execute(several, [["x", "y"]])) == [("y", 20)]
session.execute(
    "BEGIN BATCH INSERT INTO notes (k, v) VALUES ('x', 30); "
    "INSERT INTO pairs (p, c, v) VALUES ('p', 'd', 31); APPLY BATCH"
)
text = "SELECT c, v FROM pairs WHERE p = 'p' AND c IN ('c', 'd')"
assert rows(session.execute(text)) == [("c", 3), ("d", 31)]
everything = session.execute("SELECT * FROM notes WHERE k = 'x'")
assert [(row.k, row.v) for row in everything] == [("x", 30)]

# A whole batch as one prepared statement.
whole = session.prepare(
    "BEGIN BATCH INSERT INTO notes (k, v) VALUES (?, ?); "
    "INSERT INTO notes (k, v) VALUES (?, ?); APPLY BATCH"
)
session.execute(whole, ("x", 40, "y", 41))
assert rows(session.execute(several, [["x", "y"]])) == [("x", 40), ("y", 41)]

# One row, by a statement of its own.
session.execute(insert, ("x", 50))
assert rows(session.execute(several, [["x"]])) == [("x", 50)]

weak = SimpleStatement(
    "SELECT v FROM notes WHERE k = 'x'", consistency_level=ConsistencyLevel.LOCAL_ONE
)
refused(weak, "QUORUM or ALL")
refused("SELECT * FROM notes", "a read-atomic table takes")
refused("INSERT INTO notes (k) VALUES ('x')", "give v, too, or null")
refused("INSERT INTO notes (k, v) VALUES ('x', 1) USING TTL 5", "without IF, USING")
refused("TRUNCATE notes", "a read-atomic table takes")
try:
    session.prepare("UPDATE notes SET v = ? WHERE k = ? IF EXISTS")
    raise AssertionError("IF is prepared")
except InvalidRequest as error:
    assert "without IF" in str(error), error

for key in ("x", "y"):
    session.execute(delete, (key,))
assert rows(session.execute(several, [["x", "y"]])) == []
cluster.shutdown()
print("all steps are done")
