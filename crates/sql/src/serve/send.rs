//! What statements answer, on its way to the client.
//!
//! Rows go out as they come: nothing here waits for the last of them, or keeps them.

use bytes::Bytes;
use futures::{Sink, SinkExt, StreamExt};
use pgwire::api::ClientInfo;
use pgwire::api::results::{FieldInfo, QueryResponse, Response, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyOutResponse};
use pgwire::messages::data::RowDescription;
use pgwire::messages::response::TransactionStatus;

use crate::serve::bounds::StatementBounds;
use crate::serve::copy::Copy;
use crate::serve::errors::{SYNTAX, error};

/// Sends what a result's columns are.
pub(crate) async fn describe<C>(client: &mut C, columns: &[FieldInfo]) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let columns = columns.iter().map(Into::into).collect();
    let columns = RowDescription::new(columns);
    let columns = PgWireBackendMessage::RowDescription(columns);
    Ok(client.feed(columns).await?)
}

/// Sends rows, so many of them at most, and, if they were all, that they were. Tells whether there may be
/// more.
pub(crate) async fn rows<C>(
    client: &mut C,
    bounds: &mut StatementBounds,
    query: &mut QueryResponse,
    most: Option<usize>,
) -> PgWireResult<bool>
where
    C: Sink<PgWireBackendMessage> + Unpin,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let mut sent = 0;
    while most.is_none_or(|most| sent < most) {
        let Some(row) = bounds.within(query.data_rows().next()).await? else {
            let tag = Tag::new(query.command_tag()).with_rows(sent);
            complete(client, tag).await?;
            return Ok(false);
        };
        client.feed(PgWireBackendMessage::DataRow(row?)).await?;
        sent += 1;
    }
    Ok(true)
}

/// Sends rows as the lines of a copy. After an error among them, which the caller sends, the client
/// knows that the copy is over.
pub(crate) async fn lines<C>(
    client: &mut C,
    bounds: &mut StatementBounds,
    mut query: QueryResponse,
    copy: &Copy,
) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let fields = query.row_schema();
    let columns = i16::try_from(fields.len()).unwrap_or(i16::MAX);
    let format = i16::from(copy.is_binary);
    let begun = CopyOutResponse::new(format as i8, columns, vec![format; fields.len()]);
    client
        .feed(PgWireBackendMessage::CopyOutResponse(begun))
        .await?;
    let mut sent = 0;
    let mut header = copy.header(fields.iter().map(FieldInfo::name));
    if !copy.is_binary
        && let Some(header) = header.take()
    {
        let header = CopyData::new(header);
        client.feed(PgWireBackendMessage::CopyData(header)).await?;
    }
    // A binary copy has its header in the message of what comes first, as drivers expect.
    let mut behind_header = |data: Bytes| match header.take() {
        Some(header) => CopyData::new([header, data].concat().into()),
        None => CopyData::new(data),
    };
    while let Some(row) = bounds.within(query.data_rows().next()).await? {
        let line = behind_header(copy.line(&row?));
        client.feed(PgWireBackendMessage::CopyData(line)).await?;
        sent += 1;
    }
    if let Some(trailer) = copy.trailer() {
        let trailer = behind_header(trailer);
        client.feed(PgWireBackendMessage::CopyData(trailer)).await?;
    }
    client
        .feed(PgWireBackendMessage::CopyDone(CopyDone::new()))
        .await?;
    complete(client, Tag::new("COPY").with_rows(sent)).await
}

/// Sends what a statement has done that has no rows.
pub(crate) async fn done<C>(client: &mut C, response: Response) -> PgWireResult<()>
where
    C: ClientInfo + Sink<PgWireBackendMessage> + Unpin,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let tag = match response {
        Response::Execution(tag) => tag,
        Response::TransactionStart(tag) => {
            client.set_transaction_status(TransactionStatus::Transaction);
            tag
        }
        Response::TransactionEnd(tag) => {
            client.set_transaction_status(TransactionStatus::Idle);
            tag
        }
        _ => return Err(error(SYNTAX, "this statement has no answer here")),
    };
    complete(client, tag).await
}

async fn complete<C>(client: &mut C, tag: Tag) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let complete = PgWireBackendMessage::CommandComplete(tag.into());
    Ok(client.feed(complete).await?)
}
