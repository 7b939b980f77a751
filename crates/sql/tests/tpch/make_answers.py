"""Asks DuckDB the 22 queries over CSV files of `examples/tpch_csv.rs`, of one scale factor.

    cargo run -p kumiki-sql --example tpch_csv -- 0.1 DIR
    pip install duckdb
    python make_answers.py 0.1 DIR
"""

import csv
import pathlib
import sys

import duckdb

here = pathlib.Path(__file__).parent
answers = here / "answers" / sys.argv[1]
data = pathlib.Path(sys.argv[2])

COLUMNS = {
    "nation": "n_nationkey bigint, n_name varchar, n_regionkey bigint, n_comment varchar",
    "region": "r_regionkey bigint, r_name varchar, r_comment varchar",
    "part": "p_partkey bigint, p_name varchar, p_mfgr varchar, p_brand varchar, p_type varchar, "
    "p_size integer, p_container varchar, p_retailprice decimal(15,2), p_comment varchar",
    "supplier": "s_suppkey bigint, s_name varchar, s_address varchar, s_nationkey bigint, "
    "s_phone varchar, s_acctbal decimal(15,2), s_comment varchar",
    "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty integer, "
    "ps_supplycost decimal(15,2), ps_comment varchar",
    "customer": "c_custkey bigint, c_name varchar, c_address varchar, c_nationkey bigint, "
    "c_phone varchar, c_acctbal decimal(15,2), c_mktsegment varchar, c_comment varchar",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus varchar, "
    "o_totalprice decimal(15,2), o_orderdate date, o_orderpriority varchar, o_clerk varchar, "
    "o_shippriority integer, o_comment varchar",
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber integer, "
    "l_quantity decimal(15,2), l_extendedprice decimal(15,2), l_discount decimal(15,2), "
    "l_tax decimal(15,2), l_returnflag varchar, l_linestatus varchar, l_shipdate date, "
    "l_commitdate date, l_receiptdate date, l_shipinstruct varchar, l_shipmode varchar, "
    "l_comment varchar",
}

db = duckdb.connect()
for table, columns in COLUMNS.items():
    db.execute(f"create table {table} ({columns})")
    db.execute(f"copy {table} from '{data / table}.csv' (header true)")

answers.mkdir(exist_ok=True)
for query in sorted(here.glob("q*.sql")):
    result = db.execute(query.read_text())
    with open(answers / f"{query.stem}.csv", "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(f"{name}:{kind}" for name, kind, *_ in result.description)
        writer.writerows(result.fetchall())
print("made by DuckDB", duckdb.__version__)
