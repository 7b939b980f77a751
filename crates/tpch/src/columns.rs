//! From generated rows to arrays.

use std::fmt::{Display, Write};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array};
use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::{Customer, LineItem, Nation, Order, Part, PartSupp, Region, Supplier};

fn keys<R>(rows: &[R], value: impl Fn(&R) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
}

fn ints<R>(rows: &[R], value: impl Fn(&R) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.iter().map(value)))
}

fn hundredths<R>(rows: &[R], value: impl Fn(&R) -> i64) -> ArrayRef {
    let values = rows.iter().map(|row| value(row).into());
    let array = Decimal128Array::from_iter_values(values).with_precision_and_scale(15, 2);
    Arc::new(array.expect("a precision and a scale that decimals have"))
}

fn money<R>(rows: &[R], value: impl Fn(&R) -> TPCHDecimal) -> ArrayRef {
    hundredths(rows, |row| value(row).into_inner())
}

fn dates<R>(rows: &[R], value: impl Fn(&R) -> TPCHDate) -> ArrayRef {
    let values = rows.iter().map(|row| value(row).to_unix_epoch());
    Arc::new(Date32Array::from_iter_values(values))
}

fn texts<'a, R>(rows: &'a [R], value: impl Fn(&'a R) -> &'a str) -> ArrayRef {
    let mut texts = StringBuilder::with_capacity(rows.len(), 16 * rows.len());
    rows.iter().for_each(|row| texts.append_value(value(row)));
    Arc::new(texts.finish())
}

fn shown<'a, R, T: Display>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> ArrayRef {
    let mut texts = StringBuilder::with_capacity(rows.len(), 16 * rows.len());
    for row in rows {
        write!(texts, "{}", value(row)).expect("memory takes what is written");
        // The value is the text that was written above.
        texts.append_value("");
    }
    Arc::new(texts.finish())
}

pub(crate) fn nation(rows: &[Nation<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.n_nationkey),
        texts(rows, |row| row.n_name),
        keys(rows, |row| row.n_regionkey),
        texts(rows, |row| row.n_comment),
    ]
}

pub(crate) fn region(rows: &[Region<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.r_regionkey),
        texts(rows, |row| row.r_name),
        texts(rows, |row| row.r_comment),
    ]
}

pub(crate) fn part(rows: &[Part<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.p_partkey),
        shown(rows, |row| &row.p_name),
        shown(rows, |row| row.p_mfgr),
        shown(rows, |row| row.p_brand),
        texts(rows, |row| row.p_type),
        ints(rows, |row| row.p_size),
        texts(rows, |row| row.p_container),
        money(rows, |row| row.p_retailprice),
        texts(rows, |row| row.p_comment),
    ]
}

pub(crate) fn supplier(rows: &[Supplier]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.s_suppkey),
        shown(rows, |row| row.s_name),
        shown(rows, |row| &row.s_address),
        keys(rows, |row| row.s_nationkey),
        shown(rows, |row| &row.s_phone),
        money(rows, |row| row.s_acctbal),
        texts(rows, |row| &row.s_comment),
    ]
}

pub(crate) fn partsupp(rows: &[PartSupp<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.ps_partkey),
        keys(rows, |row| row.ps_suppkey),
        ints(rows, |row| row.ps_availqty),
        money(rows, |row| row.ps_supplycost),
        texts(rows, |row| row.ps_comment),
    ]
}

pub(crate) fn customer(rows: &[Customer<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.c_custkey),
        shown(rows, |row| row.c_name),
        shown(rows, |row| &row.c_address),
        keys(rows, |row| row.c_nationkey),
        shown(rows, |row| &row.c_phone),
        money(rows, |row| row.c_acctbal),
        texts(rows, |row| row.c_mktsegment),
        texts(rows, |row| row.c_comment),
    ]
}

pub(crate) fn orders(rows: &[Order<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.o_orderkey),
        keys(rows, |row| row.o_custkey),
        texts(rows, |row| row.o_orderstatus.as_str()),
        money(rows, |row| row.o_totalprice),
        dates(rows, |row| row.o_orderdate),
        texts(rows, |row| row.o_orderpriority),
        shown(rows, |row| row.o_clerk),
        ints(rows, |row| row.o_shippriority),
        texts(rows, |row| row.o_comment),
    ]
}

pub(crate) fn lineitem(rows: &[LineItem<'_>]) -> Vec<ArrayRef> {
    vec![
        keys(rows, |row| row.l_orderkey),
        keys(rows, |row| row.l_partkey),
        keys(rows, |row| row.l_suppkey),
        ints(rows, |row| row.l_linenumber),
        // The generator has whole numbers here, where the specification has a decimal.
        hundredths(rows, |row| 100 * row.l_quantity),
        money(rows, |row| row.l_extendedprice),
        money(rows, |row| row.l_discount),
        money(rows, |row| row.l_tax),
        texts(rows, |row| row.l_returnflag),
        texts(rows, |row| row.l_linestatus),
        dates(rows, |row| row.l_shipdate),
        dates(rows, |row| row.l_commitdate),
        dates(rows, |row| row.l_receiptdate),
        texts(rows, |row| row.l_shipinstruct),
        texts(rows, |row| row.l_shipmode),
        texts(rows, |row| row.l_comment),
    ]
}
