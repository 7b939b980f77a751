//! Replies of several values.

use base::nested::{NestedItem, NestedReply};
use resp::{Protocol, Writer};

/// Writes a reply.
pub(crate) fn write(reply: &NestedReply, writer: &mut Writer<'_>) {
    let mut items = reply.items();
    while let Some(item) = items.next() {
        match item {
            NestedItem::Pairs(pairs) if writer.protocol() == Protocol::Resp3 => {
                writer.array(pairs);
                for _ in 0..pairs {
                    writer.array(2);
                    // Both are single values.
                    let pair = items.by_ref().take(2);
                    pair.for_each(|item| write_item(item, writer));
                }
            }
            item => write_item(item, writer),
        }
    }
}

fn write_item(item: NestedItem<'_>, writer: &mut Writer<'_>) {
    match item {
        NestedItem::Nil => writer.null(),
        NestedItem::NilArray => writer.null_array(),
        NestedItem::Ok => writer.ok(),
        NestedItem::Int(number) => writer.int(number),
        NestedItem::Double(number) => writer.double(number),
        NestedItem::Decimal(number) => writer.decimal(number),
        NestedItem::Bytes(bytes) => writer.bulk(bytes),
        NestedItem::Array(items) => writer.array(items),
        NestedItem::Set(items) => writer.set(items),
        NestedItem::Map(pairs) => writer.map(pairs),
        NestedItem::Pairs(pairs) => writer.array(2 * pairs),
    }
}
