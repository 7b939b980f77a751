// Pgx, as its users run it: `pgx HOST PORT`. Prints `ok` if every answer is right.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

func check(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %#v, expected %#v", found, expected))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func one[T any](connection *pgx.Conn, sql string, parameters ...any) T {
	rows, err := connection.Query(context.Background(), sql, parameters...)
	must(err)
	value, err := pgx.CollectOneRow(rows, pgx.RowTo[T])
	if err != nil {
		panic(fmt.Sprintf("%s: %v", sql, err))
	}
	return value
}

func all[T any](connection *pgx.Conn, sql string, parameters ...any) []T {
	rows, err := connection.Query(context.Background(), sql, parameters...)
	must(err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		panic(fmt.Sprintf("%s: %v", sql, err))
	}
	return values
}

func ask(place string, mode pgx.QueryExecMode) {
	ctx := context.Background()
	config, err := pgx.ParseConfig(place)
	must(err)
	config.DefaultQueryExecMode = mode
	connection, err := pgx.ConnectConfig(ctx, config)
	must(err)
	defer connection.Close(ctx)
	must(connection.Ping(ctx))

	check(one[int64](connection, "select 1"), int64(1))
	check(one[string](connection, "select n_name from nation where n_nationkey = $1", 3), "CANADA")
	check(one[int64](connection, "select n_nationkey from nation where n_name = $1", "CANADA"), int64(3))
	day := time.Date(1998, 9, 2, 0, 0, 0, 0, time.UTC)
	before := one[int64](connection, "select count(*) from lineitem where l_shipdate <= '1998-09-02'")
	check(one[int64](connection, "select count(*) from lineitem where l_shipdate <= $1", day), before)
	check(one[time.Time](connection, "select $1::date", day), day)
	check(one[bool](connection, "select $1::boolean", true), true)
	check(one[float64](connection, "select $1::float8", 0.5), 0.5)
	check(one[*string](connection, "select $1::text", nil), (*string)(nil))
	check(one[[]byte](connection, "select $1::bytea", []byte{0, 255}), []byte{0, 255})
	moment := time.Date(2001, 2, 3, 4, 5, 6, 700_000_000, time.UTC)
	check(one[time.Time](connection, "select $1::timestamptz", moment).UTC(), moment)
	var price pgtype.Numeric
	must(price.Scan("100.25"))
	sum := one[pgtype.Numeric](connection, "select $1::numeric(10,2) + 1", price)
	value, err := sum.Value()
	must(err)
	check(value, "101.25")

	// Arrays as parameters and as results.
	names := all[string](connection, "select n_name from nation where n_nationkey = any($1) order by 1", []int64{3, 1})
	check(names, []string{"ARGENTINA", "CANADA"})
	names = all[string](connection, "select n_name from nation where n_name = any($1::text[]) order by 1", []string{"PERU", "CANADA"})
	check(names, []string{"CANADA", "PERU"})
	check(one[[]int64](connection, "select array_agg(n_nationkey order by n_nationkey) from nation where n_nationkey < 3"), []int64{0, 1, 2})
	text := func(value string) *string { return &value }
	check(one[[]*string](connection, "select array['a b', '', 'NULL', null]"), []*string{text("a b"), text(""), text("NULL"), nil})
	check(one[[][]int64](connection, "select array[array[1, 2], array[3, 4]]"), [][]int64{{1, 2}, {3, 4}})

	// Several statements sent together.
	batch := &pgx.Batch{}
	for key := range 3 {
		batch.Queue("select n_nationkey from nation where n_nationkey = $1", key)
	}
	results := connection.SendBatch(ctx, batch)
	for key := range 3 {
		var found int64
		must(results.QueryRow().Scan(&found))
		check(found, int64(key))
	}
	must(results.Close())

	// A cursor of SQL, a savepoint and an error, in a transaction.
	transaction, err := connection.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	must(err)
	_, err = transaction.Exec(ctx, "declare c cursor for select n_nationkey from nation order by 1")
	must(err)
	rows, err := transaction.Query(ctx, "fetch 3 from c")
	must(err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	must(err)
	check(keys, []int64{0, 1, 2})
	inner, err := transaction.Begin(ctx)
	must(err)
	_, err = inner.Exec(ctx, "select nothing from nation")
	var refused *pgconn.PgError
	check(errors.As(err, &refused), true)
	check(refused.Code, "42703")
	must(inner.Rollback(ctx))
	tag, err := transaction.Exec(ctx, "select n_name from nation")
	must(err)
	check(tag.RowsAffected(), int64(25))
	must(transaction.Commit(ctx))

	// Copies.
	var output bytes.Buffer
	_, err = connection.PgConn().CopyTo(ctx, &output, "copy (select r_regionkey, r_name from region order by 1) to stdout csv")
	must(err)
	check(output.String()[:9], "0,AFRICA\n")
}

func main() {
	place := fmt.Sprintf("host=%s port=%s user=tester dbname=kumiki sslmode=disable", os.Args[1], os.Args[2])
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		fmt.Println(mode)
		ask(place, mode)
	}
	pool, err := pgxpool.New(context.Background(), place)
	must(err)
	var found int64
	must(pool.QueryRow(context.Background(), "select $1::int8", 7).Scan(&found))
	check(found, int64(7))
	pool.Close()
	fmt.Println("ok")
}
