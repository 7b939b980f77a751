// pgjdbc, as its users run it: `java -cp JAR PgJdbc.java HOST PORT`. Prints `ok` if every answer is right.

import java.math.BigDecimal;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

class PgJdbc {
    static final List<String> TABLES = List.of(
            "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier");

    static void check(Object found, Object expected) {
        if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError("found " + shown(found) + ", expected " + shown(expected));
        }
    }

    static String shown(Object value) {
        return value instanceof Object[] array ? Arrays.deepToString(array) : String.valueOf(value);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) {
            values.add(rows.getString(name));
        }
        rows.close();
        return values;
    }

    interface Setter {
        void set(PreparedStatement statement) throws SQLException;
    }

    static Object one(Connection connection, String sql, Setter setter) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            Object last = null;
            // Values come in their binary form after some executions.
            for (int execution = 0; execution < 7; execution++) {
                setter.set(statement);
                try (ResultSet rows = statement.executeQuery()) {
                    check(rows.next(), true);
                    Object value = rows.getObject(1);
                    if (value instanceof Array array) {
                        value = array.getArray();
                    }
                    if (execution > 0) {
                        check(value, last);
                    }
                    last = value;
                }
            }
            return last;
        }
    }

    static Object one(Connection connection, String sql) throws SQLException {
        return one(connection, sql, statement -> {});
    }

    public static void main(String[] arguments) throws Exception {
        String place = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/kumiki?user=tester";
        for (String mode : List.of("extended", "simple", "extendedForPrepared", "extendedCacheEverything")) {
            try (Connection connection = DriverManager.getConnection(place + "&preferQueryMode=" + mode)) {
                try {
                    queries(connection, mode);
                    cursors(connection);
                    transactions(connection);
                    metadata(connection);
                    if (!mode.equals("simple")) {
                        described(connection);
                    }
                } catch (Throwable failed) {
                    System.out.println("preferQueryMode=" + mode);
                    throw failed;
                }
            }
        }
        System.out.println("ok");
    }

    static void queries(Connection connection, String mode) throws SQLException {
        check(one(connection, "select n_name from nation where n_nationkey = ?", s -> s.setInt(1, 3)), "CANADA");
        check(one(connection, "select n_name from nation where n_nationkey = ?", s -> s.setLong(1, 3)), "CANADA");
        check(one(connection, "select n_nationkey from nation where n_name = ?", s -> s.setString(1, "CANADA")), 3L);
        check(one(connection, "select n_name from nation where n_nationkey = 3 and ?", s -> s.setBoolean(1, true)), "CANADA");
        check(one(connection, "select ?::boolean", s -> s.setBoolean(1, false)), false);
        check(one(connection, "select ?::numeric(10,2) + 1", s -> s.setBigDecimal(1, new BigDecimal("100.25"))), new BigDecimal("101.25"));
        check(one(connection, "select count(*) from orders where o_totalprice < ?", s -> s.setBigDecimal(1, new BigDecimal("1E+6"))), 15000L);
        check(one(connection, "select ?::float8", s -> s.setDouble(1, 0.5)), 0.5);
        OffsetDateTime zoned = OffsetDateTime.parse("2001-02-03T04:05:06Z");
        check(one(connection, "select ?::timestamptz", s -> s.setObject(1, zoned)), Timestamp.from(zoned.toInstant()));
        check(one(connection, "select ?::text", s -> s.setNull(1, Types.VARCHAR)), null);
        check(one(connection, "select n_name from nation where n_nationkey = coalesce(?, 3)", s -> s.setNull(1, Types.BIGINT)), "CANADA");
        check(one(connection, "select ?::bytea", s -> s.setBytes(1, new byte[] {0, -1})), new byte[] {0, -1});

        // Days and times have a zone, which PostgreSQL passes over; it stays in the text of a simple query.
        if (!mode.equals("simple")) {
            Object before = one(connection, "select count(*) from lineitem where l_shipdate <= '1998-09-02'");
            String until = "select count(*) from lineitem where l_shipdate <= ?";
            check(one(connection, until, s -> s.setDate(1, Date.valueOf("1998-09-02"))), before);
            check(one(connection, until, s -> s.setObject(1, LocalDate.of(1998, 9, 2))), before);
            check(one(connection, until, s -> s.setTimestamp(1, Timestamp.valueOf("1998-09-02 00:00:00"))), before);
            check(one(connection, "select ?::date", s -> s.setDate(1, Date.valueOf("1998-09-02"))), Date.valueOf("1998-09-02"));
            Timestamp time = Timestamp.valueOf("2001-02-03 04:05:06.7");
            check(one(connection, "select ?::timestamp", s -> s.setTimestamp(1, time)), time);
            check(one(connection, "select ?::timestamp", s -> s.setObject(1, LocalDateTime.of(2001, 2, 3, 4, 5, 6))), Timestamp.valueOf("2001-02-03 04:05:06"));
        }

        // Arrays as parameters and as results.
        Array keys = connection.createArrayOf("int8", new Object[] {3L, 1L});
        check(one(connection, "select count(*) from nation where n_nationkey = any(?)", s -> s.setArray(1, keys)), 2L);
        Array names = connection.createArrayOf("text", new Object[] {"CANADA", "PERU"});
        check(one(connection, "select count(*) from nation where n_name = any(?)", s -> s.setArray(1, names)), 2L);
        check(one(connection, "select array_agg(n_nationkey order by n_nationkey) from nation where n_nationkey < 3"), new Long[] {0L, 1L, 2L});
        check(one(connection, "select array['a b', '', 'NULL', null]"), new String[] {"a b", "", "NULL", null});
        check(one(connection, "select array[array[1, 2], array[3, 4]]"), new Long[][] {{1L, 2L}, {3L, 4L}});

        // Several statements, and batches.
        try (Statement statement = connection.createStatement()) {
            check(statement.execute("select 1; select 2"), true);
            check(statement.getMoreResults(), true);
            try (ResultSet rows = statement.getResultSet()) {
                check(rows.next(), true);
                check(rows.getInt(1), 2);
            }
            check(statement.execute("set application_name = 'a test'"), false);
        }
        if (mode.startsWith("extended")) {
            try (PreparedStatement statement = connection.prepareStatement("select n_nationkey from nation order by 1")) {
                statement.setMaxRows(2);
                check(column(statement.executeQuery(), "n_nationkey").size(), 2);
            }
        }
        connection.setSchema("public");
        check(connection.getCatalog(), "kumiki");
        check(connection.isValid(5), true);
    }

    static void cursors(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("select n_nationkey from nation where n_regionkey >= ? order by 1")) {
            statement.setFetchSize(7);
            statement.setInt(1, 0);
            check(column(statement.executeQuery(), "n_nationkey").size(), 25);
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void transactions(Connection connection) throws SQLException {
        connection.setReadOnly(true);
        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        check(connection.getTransactionIsolation(), Connection.TRANSACTION_REPEATABLE_READ);
        connection.setAutoCommit(false);
        Savepoint savepoint = connection.setSavepoint();
        try {
            one(connection, "select nothing from nation");
            throw new AssertionError("a column that is not there was found");
        } catch (SQLException error) {
            check(error.getSQLState(), "42703");
        }
        connection.rollback(savepoint);
        check(one(connection, "select 2"), 2L);
        connection.commit();
        connection.setAutoCommit(true);
        connection.setReadOnly(false);
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        check(about.getDatabaseMajorVersion(), 16);
        check(about.getDatabaseProductName(), "PostgreSQL");
        check(column(about.getTables(null, "public", "%", new String[] {"TABLE"}), "table_name"), TABLES);
        check(column(about.getTables(null, null, "nat%", null), "table_name"), List.of("nation"));
        check(column(about.getTables(null, null, "%", new String[] {"VIEW"}), "table_name"), List.of());
        List<String> names = new ArrayList<>();
        try (ResultSet rows = about.getColumns(null, "public", "lineitem", null)) {
            while (rows.next()) {
                String name = rows.getString("column_name");
                names.add(name);
                if (name.equals("l_extendedprice")) {
                    check(rows.getInt("data_type"), Types.NUMERIC);
                    check(rows.getString("type_name"), "numeric");
                    check(rows.getInt("column_size"), 15);
                    check(rows.getInt("decimal_digits"), 2);
                }
                if (name.equals("l_shipdate")) {
                    check(rows.getInt("data_type"), Types.DATE);
                    check(rows.getString("type_name"), "date");
                }
                check(rows.getInt("ordinal_position"), names.size());
            }
        }
        check(names.size(), 16);
        check(names.get(0), "l_orderkey");
        check(column(about.getColumns(null, null, "nation", "n_n%"), "type_name"), List.of("int8", "text"));
        check(column(about.getPrimaryKeys(null, "public", "nation"), "column_name"), List.of());
        check(column(about.getImportedKeys(null, "public", "nation"), "fkcolumn_name"), List.of());
        check(column(about.getExportedKeys(null, "public", "nation"), "fkcolumn_name"), List.of());
        check(column(about.getIndexInfo(null, "public", "nation", false, true), "index_name"), List.of());
        check(column(about.getBestRowIdentifier(null, "public", "nation", DatabaseMetaData.bestRowSession, true), "column_name"), List.of());
        check(column(about.getSchemas(), "table_schem").contains("public"), true);
        check(column(about.getCatalogs(), "table_cat").contains("kumiki"), true);
        check(column(about.getTableTypes(), "table_type").contains("TABLE"), true);
        List<String> types = column(about.getTypeInfo(), "type_name");
        check(types.containsAll(List.of("bool", "int8", "numeric", "text", "date", "timestamp")), true);
        check(column(about.getProcedures(null, null, "nothing%"), "procedure_name"), List.of());
        check(column(about.getFunctions(null, null, "nothing%"), "function_name"), List.of());
        check(column(about.getTablePrivileges(null, "public", "nation"), "table_name").stream().allMatch("nation"::equals), true);
        check(about.getSQLKeywords().isEmpty(), false);
    }

    // What is known of columns and parameters before a statement is executed.
    static void described(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("select n_name as name, n_nationkey from nation where n_nationkey = ?")) {
            check(statement.getMetaData().getColumnLabel(1), "name");
            check(statement.getMetaData().getColumnTypeName(2), "int8");
            check(statement.getMetaData().isNullable(1) != -1, true);
            check(statement.getParameterMetaData().getParameterTypeName(1), "int8");
        }
    }
}
