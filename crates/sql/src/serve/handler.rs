//! Statements of clients: how they are planned and executed, and PostgreSQL's simple protocol. The extended
//! protocol is in [`extended`].
//!
//! What plans and executes returns its future in a box, and plans and statements are in [`OpaqueArc`]s: that saves the
//! compiler a minute.

pub(crate) mod extended;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{ParamValues, exec_err};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{LogicalPlan, Statement};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{Sink, SinkExt, StreamExt, stream};
use pgwire::api::portal::{Format, PortalExecutionState};
use pgwire::api::query::{SimpleQueryHandler, send_ready_for_query};
use pgwire::api::results::{FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use pgwire::messages::simplequery::Query;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::query_resources::with_resources;
use crate::serve::activity::Own;
use crate::serve::bounds::StatementBounds;
use crate::serve::catalogue_queries::object_numbers;
use crate::serve::catalogue_tables::SharedCatalogue;
use crate::serve::compatible::{self, SettingReply, SettingSpan, answer};
use crate::serve::copy::{Copy, copy};
use crate::serve::cursor::{CursorCommand, SqlCursors, command};
use crate::serve::errors::{
    COMPLEX, INTERNAL, INVALID_SETTING, NO_TRANSACTION, SYNTAX, TOO_MANY, UNSUPPORTED, error,
    of_query,
};
use crate::serve::opaque_arc::OpaqueArc;
use crate::serve::send::{describe, done, lines, rows};
use crate::serve::system::System;
use crate::serve::timeout::{self, Timeout};
use crate::serve::{encode, parameters, types};
use crate::session::{MOST_OPERATORS, Session, TOO_COMPLEX};
use crate::shell::script::{ScriptPart, cut, operators};

/// How long a query waits for others to end before it is refused.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection's statements.
pub(crate) struct Handler {
    session: OpaqueArc<System>,
    /// Who the client is, and what it does.
    own: Arc<Own>,
    /// Queries that may run at once, of all connections.
    running: Arc<Semaphore>,
    /// How long a query waits for a client that takes no rows.
    patience: Option<Duration>,
    /// How long a statement may take.
    timeout: Timeout,
    /// Statements that may be planned at once, of all connections.
    planning: Arc<Semaphore>,
    cursors: SqlCursors,
    /// Portals that have more rows, by their names.
    portals: parking_lot::Mutex<HashMap<String, Weak<PortalState>>>,
}

/// What has been executed of a portal.
type PortalState = tokio::sync::Mutex<PortalExecutionState>;

/// A statement that was prepared: what is known of it from its plan. When it is executed it is planned anew,
/// over the versions that tables have then.
#[derive(Clone, Debug)]
pub(crate) struct ExtendedStatement {
    sql: String,
    kind: OpaqueArc<Kind>,
    parameters: Vec<Type>,
    columns: SchemaRef,
}

/// What a statement is.
#[derive(Clone, Debug)]
enum Kind {
    /// One that needs no query.
    Answer(SettingReply),
    /// Rows as lines of text.
    Copy(Copy),
    /// A statement about cursors.
    Cursor(CursorCommand),
    /// All others, which are DataFusion's.
    Query,
}

impl Kind {
    /// Returns the kind of a statement. Nothing walks over its tree before it is known not to be too deep.
    fn of(sql: &str) -> PgWireResult<Kind> {
        if let Some(answer) = answer(sql) {
            return Ok(Kind::Answer(answer));
        }
        if operators(sql) > MOST_OPERATORS {
            return Err(error(COMPLEX, TOO_COMPLEX));
        }
        match command(sql) {
            None => {}
            Some(Ok(command)) => return Ok(Kind::Cursor(command)),
            Some(Err((state, what))) => return Err(error(state, what)),
        }
        match copy(sql) {
            None => Ok(Kind::Query),
            Some(Ok(copy)) => Ok(Kind::Copy(copy)),
            Some(Err((state, what))) => Err(error(state, what)),
        }
    }
}

impl Handler {
    pub(crate) fn new(
        session: Session,
        running: &Arc<Semaphore>,
        planning: &Arc<Semaphore>,
        patience: Option<Duration>,
        own: Own,
        system: &SharedCatalogue,
    ) -> Handler {
        let own = Arc::new(own);
        Handler {
            session: OpaqueArc::new(System::new(session, Arc::clone(&own), system.clone())),
            own,
            running: Arc::clone(running),
            patience,
            timeout: Timeout::default(),
            planning: Arc::clone(planning),
            cursors: SqlCursors::default(),
            portals: parking_lot::Mutex::default(),
        }
    }

    /// Returns the client's own part of the list of clients.
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Keeps in mind that a portal has more rows.
    fn is_suspended(&self, name: &str, portal: &Arc<PortalState>) {
        let mut portals = self.portals.lock();
        portals.retain(|_, portal| portal.strong_count() > 0);
        portals.insert(name.to_owned(), Arc::downgrade(portal));
    }

    /// Returns the portal of a name that has more rows, unless a cursor has that name.
    fn suspended(&self, name: &str) -> Option<Arc<PortalState>> {
        match self.cursors.columns(name) {
            Ok(_) => None,
            Err(_) => self.portals.lock().get(name)?.upgrade(),
        }
    }

    /// Answers a statement that is no query.
    async fn respond<C>(
        &self,
        client: &mut C,
        answer: &SettingReply,
        formats: Option<&Format>,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore,
        C::PortalStore: PortalStore,
    {
        let shown = |batch: RecordBatch| {
            let schema = batch.schema();
            let one = stream::iter([Ok(batch)]);
            let batches = RecordBatchStreamAdapter::new(Arc::clone(&schema), one);
            query(Box::pin(batches), &schema, formats)
        };
        let within = client.transaction_status() != TransactionStatus::Idle;
        Ok(match answer {
            SettingReply::Begin(tag) => Response::TransactionStart(Tag::new(tag)),
            SettingReply::End(tag) => {
                self.timeout.end_transaction();
                self.cursors.end_transaction(*tag == "COMMIT");
                client.portal_store().clear_portals();
                Response::TransactionEnd(Tag::new(tag))
            }
            SettingReply::Savepoint(_) if !within => {
                let what = "savepoints are part of transactions: begin one first";
                return Err(error(NO_TRANSACTION, what));
            }
            // Response for a transaction that goes on, also after an error.
            SettingReply::Savepoint("ROLLBACK") => Response::TransactionStart(Tag::new("ROLLBACK")),
            SettingReply::Savepoint(tag) | SettingReply::Done(tag) => {
                Response::Execution(Tag::new(tag))
            }
            SettingReply::Limit(milliseconds, span) => {
                match span {
                    SettingSpan::Transaction if within => self.timeout.set_local(*milliseconds),
                    // It would end at once.
                    SettingSpan::Transaction => {}
                    SettingSpan::Session | SettingSpan::Reset => self.timeout.set(*milliseconds),
                }
                let is_reset = *span == SettingSpan::Reset;
                Response::Execution(Tag::new(if is_reset { "RESET" } else { "SET" }))
            }
            SettingReply::Shown(batch) => shown(batch.clone()),
            SettingReply::ShownLimit => {
                shown(compatible::shown(timeout::NAME, &self.timeout.show()))
            }
            SettingReply::Reset(tag) => {
                self.timeout.set(0);
                self.reset().await.map_err(|failed| of_query(&failed))?;
                if *tag != "RESET" {
                    self.cursors.close(None)?;
                    client.portal_store().clear_portals();
                }
                Response::Execution(Tag::new(tag))
            }
            SettingReply::Deallocate(name) => {
                client.portal_store().rm_statement(name);
                self.deallocate(name).await;
                Response::Execution(Tag::new("DEALLOCATE"))
            }
            SettingReply::Refused(what) => return Err(error(INVALID_SETTING, what)),
        })
    }

    /// Undoes what the client has set.
    fn reset(&self) -> BoxFuture<'_, Result<(), DataFusionError>> {
        Box::pin(self.session.session().reset())
    }

    /// Forgets a statement that SQL has prepared.
    fn deallocate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.session.session().deallocate(name))
    }

    /// Plans one statement and does nothing of it.
    fn logical<'a>(
        &'a self,
        sql: &'a str,
        kind: &'a Kind,
    ) -> BoxFuture<'a, PgWireResult<LogicalPlan>> {
        let session = self.session.clone();
        let query = match kind {
            Kind::Copy(copy) => Err(copy.query.clone()),
            Kind::Cursor(CursorCommand::Declare(declare)) => Err(declare.query.clone()),
            Kind::Answer(_) | Kind::Cursor(_) | Kind::Query => Ok(sql.to_owned()),
        };
        Box::pin(self.planned(async move {
            match query {
                Ok(sql) => session.logical(&sql).await,
                Err(query) => session.logical_of(query).await,
            }
        }))
    }

    /// Runs the planning of a statement on a thread of its own, which computes without a pause: a client that
    /// does not want the statement any more does not wait for it.
    async fn planned<T: Send + 'static>(
        &self,
        planning: impl Future<Output = Result<T, DataFusionError>> + Send + 'static,
    ) -> PgWireResult<T> {
        let place = Arc::clone(&self.planning).acquire_owned().await;
        let runtime = Handle::current();
        let thread = spawn_blocking(move || {
            let _place = place;
            runtime.block_on(planning)
        });
        match thread.await {
            Ok(planned) => planned.map_err(|failed| of_query(&failed)),
            Err(failed) => {
                tracing::error!("a statement could not be planned: {failed}");
                Err(error(INTERNAL, "the statement could not be planned"))
            }
        }
    }

    /// Executes a statement about cursors, which is within a transaction or not.
    fn cursor<'a>(
        &'a self,
        sql: &'a str,
        kind: &'a Kind,
        values: Option<ParamValues>,
        formats: Option<&'a Format>,
        within: bool,
    ) -> BoxFuture<'a, PgWireResult<Response>> {
        Box::pin(self.executed_cursor(sql, kind, values, formats, within))
    }

    async fn executed_cursor(
        &self,
        sql: &str,
        kind: &Kind,
        values: Option<ParamValues>,
        formats: Option<&Format>,
        within: bool,
    ) -> PgWireResult<Response> {
        let Kind::Cursor(command) = kind else {
            return Err(error(INTERNAL, "this statement is not about cursors"));
        };
        match command {
            CursorCommand::Declare(declare) => {
                if !within && !declare.hold {
                    let what = "DECLARE CURSOR can only be used in transaction blocks: begin one first, or \
                                declare it WITH HOLD";
                    return Err(error(NO_TRANSACTION, what));
                }
                self.cursors.is_new(&declare.name)?;
                let plan = self.logical(sql, kind).await?;
                let batches = self.batches(plan, values, None).await?;
                let batches = batches.ok_or_else(|| error(SYNTAX, "a cursor is for a query"))?;
                self.cursors.open(declare, batches, within);
                Ok(Response::Execution(Tag::new("DECLARE CURSOR")))
            }
            CursorCommand::Fetch(fetch) if fetch.moves => {
                let mut batches = self.cursors.fetch(fetch)?;
                let mut passed = 0;
                while let Some(batch) = batches.next().await {
                    passed += batch.map_err(|failed| of_query(&failed))?.num_rows();
                }
                Ok(Response::Execution(Tag::new("MOVE").with_rows(passed)))
            }
            CursorCommand::Fetch(fetch) => {
                let batches = self.cursors.fetch(fetch)?;
                let schema = batches.schema();
                let mut response = query(batches, &schema, formats);
                if let Response::Query(rows) = &mut response {
                    rows.set_command_tag("FETCH");
                }
                Ok(response)
            }
            CursorCommand::Close(name) => {
                self.cursors.close(name.as_deref())?;
                let tag = if name.is_some() {
                    "CLOSE CURSOR"
                } else {
                    "CLOSE CURSOR ALL"
                };
                Ok(Response::Execution(Tag::new(tag)))
            }
        }
    }

    /// Plans a query and has it begin. If its rows are described already, they must be described by these columns.
    fn begun<'a>(
        &'a self,
        sql: &'a str,
        kind: &'a Kind,
        values: Option<ParamValues>,
        formats: Option<&'a Format>,
        described: Option<&'a Schema>,
    ) -> BoxFuture<'a, PgWireResult<Response>> {
        Box::pin(async move {
            let plan = self.logical(sql, kind).await?;
            let tag = tag(&plan);
            let batches = self.batches(plan, values, described).await?;
            Ok(match batches {
                None => Response::Execution(Tag::new(tag)),
                Some(batches) => {
                    let schema = batches.schema();
                    query(batches, &schema, formats)
                }
            })
        })
    }

    /// Has a plan begin, and returns its rows; `None` if the statement has none.
    async fn batches(
        &self,
        plan: LogicalPlan,
        values: Option<ParamValues>,
        described: Option<&Schema>,
    ) -> PgWireResult<Option<SendableRecordBatchStream>> {
        let failed = |failed| of_query(&failed);
        let place = admitted(&self.running).await.map_err(failed)?;
        let session = self.session.session();
        let own = session.clone();
        let begun = self.planned(async move {
            let planned = own.begin(plan).await?;
            match values {
                Some(values) => own.with_values(planned, values),
                None => Ok(planned),
            }
        });
        let planned = begun.await?;
        let schema = Arc::new(planned.schema().as_arrow().clone());
        if described.is_some_and(|described| !types::same(described, &schema)) {
            let what = "cached plan must not change result type: the table has other columns than it had, so \
                        that the statement has to be prepared again";
            return Err(error(UNSUPPORTED, what));
        }
        let context = planned.task_ctx();
        let plan = self.planned(async move { planned.create_physical_plan().await });
        let plan = plan.await?;
        if schema.fields().is_empty() {
            return Ok(None);
        }
        let batches = session.run(plan, with_resources(context, place), self.patience);
        let batches = batches.map_err(failed)?;
        // The plan may name its columns otherwise.
        Ok(Some(Box::pin(RecordBatchStreamAdapter::new(
            schema, batches,
        ))))
    }

    /// Executes one statement of a script, from planning to the last row.
    async fn execute<C>(
        &self,
        client: &mut C,
        bounds: &mut StatementBounds,
        sql: &str,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let kind = OpaqueArc::new(Kind::of(sql)?);
        let response = match &*kind {
            Kind::Answer(answer) => self.respond(client, answer, None).await?,
            Kind::Cursor(command) => {
                let within = client.transaction_status() != TransactionStatus::Idle;
                let portal = match command {
                    CursorCommand::Fetch(fetch) if fetch.moves => self.suspended(&fetch.name),
                    _ => None,
                };
                match (portal, command) {
                    (Some(portal), CursorCommand::Fetch(fetch)) => {
                        let passed = bounds.within(pass(&portal, fetch.most)).await??;
                        Response::Execution(Tag::new("MOVE").with_rows(passed))
                    }
                    _ => {
                        let done = self.cursor(sql, &kind, None, None, within);
                        bounds.within(done).await??
                    }
                }
            }
            Kind::Copy(_) | Kind::Query => {
                let formats = match &*kind {
                    Kind::Copy(copy) => formats_of(copy),
                    _ => None,
                };
                let begun = self.begun(sql, &kind, None, formats, None);
                bounds.within(begun).await??
            }
        };
        match (response, &*kind) {
            (Response::Query(query), Kind::Copy(copy)) => {
                lines(client, bounds, query, copy).await?;
            }
            (Response::Query(mut query), _) => {
                describe(client, &query.row_schema()).await?;
                rows(client, bounds, &mut query, None).await?;
            }
            (response, _) => done(client, response).await?,
        }
        Ok(())
    }
}

/// Passes over the next rows of a portal, so many of them at most, and returns how many there were: drivers name a
/// portal as if it were a cursor.
async fn pass(portal: &PortalState, most: Option<usize>) -> PgWireResult<usize> {
    let before = std::mem::replace(&mut *portal.lock().await, PortalExecutionState::Finished);
    let PortalExecutionState::Suspended(mut query) = before else {
        return Ok(0);
    };
    let mut passed = 0;
    while most.is_none_or(|most| passed < most) {
        match query.data_rows().next().await {
            Some(row) => row?,
            None => return Ok(passed),
        };
        passed += 1;
    }
    *portal.lock().await = PortalExecutionState::Suspended(query);
    Ok(passed)
}

/// Returns the form of the values of which a copy is made: texts, if there is none.
fn formats_of(copy: &Copy) -> Option<&'static Format> {
    copy.is_binary.then_some(&Format::UnifiedBinary)
}

/// Returns a place among the queries that run.
async fn admitted(running: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, DataFusionError> {
    let place = Arc::clone(running).acquire_owned();
    match tokio::time::timeout(PATIENCE, place).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => exec_err!("{TOO_MANY}"),
    }
}

/// Returns the tag of a statement without rows, which says what it did.
fn tag(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Statement(Statement::Prepare(_)) => "PREPARE",
        LogicalPlan::Statement(_) => "SET",
        _ => "SELECT",
    }
}

/// Returns a result that is written as it comes.
fn query(
    batches: SendableRecordBatchStream,
    schema: &SchemaRef,
    formats: Option<&Format>,
) -> Response {
    let fields = types::fields(schema, formats);
    let described = Arc::clone(&fields);
    let rows = batches.flat_map(move |batch| {
        let rows = match batch {
            Ok(batch) => encode::rows(&batch, &fields).map_err(|arrow| of_query(&arrow.into())),
            Err(failed) => Err(of_query(&failed)),
        };
        stream::iter(match rows {
            Ok(rows) => rows.into_iter().map(Ok).collect(),
            Err(failed) => vec![Err(failed)],
        })
    });
    Response::Query(QueryResponse::new(described, rows))
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        begin(client)?;
        self.do_query(client, &query.query).await?;
        client.set_state(PgWireConnectionState::ReadyForQuery);
        let status = client.transaction_status();
        send_ready_for_query(client, status).await
    }

    /// Executes the statements of a script, each from planning to its last row before the next one: what they
    /// answer is sent by then.
    async fn do_query<C>(&self, client: &mut C, text: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let script = cut(text);
        let parts: Vec<ScriptPart> = script
            .parts
            .into_iter()
            .chain(script.rest.map(ScriptPart::Statement))
            .collect();
        if parts.is_empty() {
            let nothing = PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new());
            client.feed(nothing).await?;
        }
        let mut bounds = StatementBounds::of(client, None).await;
        for part in parts {
            let sql = match part {
                ScriptPart::Statement(sql) => sql,
                ScriptPart::Command(line) => {
                    return Err(error(SYNTAX, format!("{line} is no statement")));
                }
            };
            bounds.again(self.timeout.get());
            self.own.begin(&sql);
            self.execute(client, &mut bounds, &sql).await?;
        }
        Ok(Vec::new())
    }
}

/// Takes up a client's message, if it is its turn.
fn begin<C: ClientInfo>(client: &mut C) -> PgWireResult<()> {
    if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
        return Err(PgWireError::NotReadyForQuery);
    }
    client.set_state(PgWireConnectionState::QueryInProgress);
    Ok(())
}

#[async_trait]
impl QueryParser for Handler {
    type Statement = ExtendedStatement;

    async fn parse_sql<C>(
        &self,
        client: &C,
        sql: &str,
        declared: &[Option<Type>],
    ) -> PgWireResult<Option<ExtendedStatement>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let kind = OpaqueArc::new(Kind::of(sql)?);
        let (parameters, columns) = match &*kind {
            Kind::Answer(answer) => (Vec::new(), answer.columns()),
            Kind::Cursor(CursorCommand::Fetch(fetch)) if !fetch.moves => {
                (Vec::new(), self.cursors.columns(&fetch.name)?)
            }
            Kind::Cursor(CursorCommand::Fetch(_) | CursorCommand::Close(_)) => {
                (Vec::new(), Arc::new(Schema::empty()))
            }
            Kind::Cursor(CursorCommand::Declare(_)) | Kind::Copy(_) | Kind::Query => {
                let mut bounds = StatementBounds::of(client, self.timeout.get()).await;
                let plan = bounds.within(self.logical(sql, &kind)).await??;
                let types = parameters::types_of(&plan, declared, &object_numbers(sql))?;
                let columns = match &*kind {
                    Kind::Query => parameters::columns(&plan, &types),
                    // Lines of a copy are no rows.
                    _ => Arc::new(Schema::empty()),
                };
                (types, columns)
            }
        };
        Ok(Some(ExtendedStatement {
            sql: sql.to_owned(),
            kind,
            parameters,
            columns,
        }))
    }

    fn get_parameter_types(&self, prepared: &ExtendedStatement) -> PgWireResult<Vec<Type>> {
        Ok(prepared.parameters.clone())
    }

    fn get_result_schema(
        &self,
        prepared: &ExtendedStatement,
        formats: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        Ok(types::fields(&prepared.columns, formats).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::serve::activity::Activity;
    use crate::session::{Settings, Shared};

    #[tokio::test]
    async fn planning_does_not_hold_up_the_thread_that_waits_for_it() {
        let shared = Shared::new(Catalogue::new(Vec::new()), Settings::default()).unwrap();
        let places = Arc::new(Semaphore::new(1));
        let own = Own::new(&Activity::new());
        let session = shared.session().unwrap();
        let system = SharedCatalogue::default();
        let handler = Handler::new(session, &places, &places, None, own, &system);
        let (go_on, waits) = mpsc::channel::<()>();
        // Planning computes and does not give way, as here; its client may stop waiting for it.
        let mut planned = Box::pin(handler.planned(async move {
            let _ = waits.recv();
            Ok(1)
        }));
        let short = Duration::from_millis(20);
        let waited = tokio::time::timeout(short, &mut planned).await;
        assert!(waited.is_err(), "it was not told to go on");
        go_on.send(()).unwrap();
        assert_eq!(planned.await.unwrap(), 1);
    }
}
