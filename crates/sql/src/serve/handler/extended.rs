//! Statements of clients by PostgreSQL's extended protocol: portals, and their rows so many at a time.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::ParamValues;
use futures::{Sink, SinkExt};
use pgwire::api::portal::{Portal, PortalExecutionState};
use pgwire::api::query::ExtendedQueryHandler;
use pgwire::api::results::{Response, Tag};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{
    Describe, Execute, PortalSuspended, Sync as PgSync, TARGET_TYPE_BYTE_PORTAL,
};
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};

use super::{ExtendedStatement, Handler, Kind, begin, formats_of};
use crate::serve::bounds::StatementBounds;
use crate::serve::errors::{NO_PORTAL, error};
use crate::serve::send::{describe, done, lines, rows};
use crate::serve::{parameters, types};

/// A [`Handler`] as the extended protocol uses it.
pub(crate) struct Extended(pub(crate) Arc<Handler>);

#[async_trait]
impl ExtendedQueryHandler for Extended {
    type Statement = ExtendedStatement;
    type QueryParser = Handler;

    fn query_parser(&self) -> Arc<Handler> {
        Arc::clone(&self.0)
    }

    /// Has a portal's statement begin; of a query the rows are to be taken.
    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<ExtendedStatement>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = ExtendedStatement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &portal.statement.statement;
        let (formats, described) = match &*prepared.kind {
            Kind::Answer(answer) => {
                let formats = Some(&portal.result_column_format);
                return self.0.respond(client, answer, formats).await;
            }
            Kind::Copy(copy) => (formats_of(copy), None),
            Kind::Cursor(_) => (Some(&portal.result_column_format), None),
            Kind::Query => (
                Some(&portal.result_column_format),
                Some(prepared.columns.as_ref()),
            ),
        };
        let values = parameters::values(portal, &prepared.parameters)?;
        let values = (!values.is_empty()).then(|| ParamValues::from(values));
        if let Kind::Cursor(_) = &*prepared.kind {
            let within = client.transaction_status() != TransactionStatus::Idle;
            let done = self
                .0
                .cursor(&prepared.sql, &prepared.kind, values, formats, within);
            return done.await;
        }
        let begun = self
            .0
            .begun(&prepared.sql, &prepared.kind, values, formats, described);
        begun.await
    }

    /// Describes a cursor of SQL as a portal of its name.
    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = ExtendedStatement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        if message.target_type == TARGET_TYPE_BYTE_PORTAL
            && client.portal_store().get_portal(name).is_none()
            && let Ok(columns) = self.0.cursors.columns(name)
        {
            return describe(client, &types::fields(&columns, None)).await;
        }
        self._on_describe(client, message).await
    }

    /// Writes rows as they come, also where some of them are wanted at a time.
    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = ExtendedStatement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        begin(client)?;
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) => {
                // None, or fewer, are all.
                let most = usize::try_from(message.max_rows).ok();
                let most = most.filter(|most| *most > 0);
                self.some_of(client, &portal, most).await?;
            }
            Some(Entry::Empty) => {
                let nothing = PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new());
                client.feed(nothing).await?;
            }
            None => {
                let what = format!("portal \"{name}\" does not exist");
                return Err(error(NO_PORTAL, what));
            }
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }

    /// Portals end with their transaction, and so do their queries; outside of one, here.
    async fn on_sync<C>(&self, client: &mut C, _: PgSync) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = ExtendedStatement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let status = client.transaction_status();
        if status == TransactionStatus::Idle {
            client.portal_store().clear_portals();
        }
        let ready = PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status));
        client.send(ready).await?;
        Ok(())
    }
}

impl Extended {
    /// Sends rows of a portal, so many of them at most, of which some may have been sent before.
    async fn some_of<C>(
        &self,
        client: &mut C,
        portal: &Portal<ExtendedStatement>,
        most: Option<usize>,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = ExtendedStatement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut bounds = StatementBounds::of(client, self.0.timeout.get()).await;
        self.0.own.begin(&portal.statement.statement.sql);
        let state = portal.state();
        // What ends with an error is over.
        let before = std::mem::replace(&mut *state.lock().await, PortalExecutionState::Finished);
        let response = match before {
            PortalExecutionState::Initial => {
                let begun = self.do_query(client, portal, 0);
                bounds.within(begun).await??
            }
            PortalExecutionState::Suspended(query) => Response::Query(query),
            PortalExecutionState::Finished => Response::Execution(Tag::new("SELECT").with_rows(0)),
        };
        match (response, &*portal.statement.statement.kind) {
            (Response::Query(query), Kind::Copy(copy)) => {
                lines(client, &mut bounds, query, copy).await
            }
            (Response::Query(mut query), _) => {
                if rows(client, &mut bounds, &mut query, most).await? {
                    *state.lock().await = PortalExecutionState::Suspended(query);
                    self.0.is_suspended(&portal.name, &state);
                    let more = PgWireBackendMessage::PortalSuspended(PortalSuspended::new());
                    client.feed(more).await?;
                }
                Ok(())
            }
            (response, _) => done(client, response).await,
        }
    }
}
