//! Statements of clients, by PostgreSQL's simple and its extended protocol.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::channel::oneshot;
use futures::{Sink, Stream, StreamExt, stream};
use pgwire::api::portal::{Format, Portal, PortalExecutionState};
use pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_execution_response, send_query_response,
};
use pgwire::api::results::{FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionHandle, DEFAULT_NAME, PgWireConnectionState, Type,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::DataRow;
use pgwire::messages::extendedquery::Execute;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::compatible::{Answer, answer};
use crate::serve::errors::{SYNTAX, TOO_MUCH, error, of_query};
use crate::serve::{encode, parameters, types};
use crate::session::Session;
use crate::shell::script::{Part, cut};

/// How long a query waits for others to end before it is refused.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection's statements.
pub(crate) struct Handler {
    session: Session,
    /// Queries that may run at once, of all connections.
    running: Arc<Semaphore>,
}

/// A statement that was prepared. Its plan tells types; when it is executed it is planned anew, over the
/// tables' newest versions.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sql: String,
    answer: Option<Answer>,
    plan: Option<Arc<LogicalPlan>>,
}

impl Handler {
    pub(crate) fn new(session: Session, running: &Arc<Semaphore>) -> Handler {
        Handler {
            session,
            running: Arc::clone(running),
        }
    }

    /// A place among the queries that run.
    async fn admitted(&self) -> PgWireResult<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.running).acquire_owned();
        match tokio::time::timeout(PATIENCE, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(error(
                TOO_MUCH,
                "too many queries run at once: ask again later, or start the server with a \
                 greater --queries",
            )),
        }
    }

    /// Answers one statement, its rows in these formats.
    async fn run(
        &self,
        sql: &str,
        values: Option<ParamValues>,
        formats: Option<&Format>,
    ) -> PgWireResult<Response> {
        let place = self.admitted().await?;
        let failed = |failed| of_query(&failed);
        let plan = self.session.logical(sql).await.map_err(failed)?;
        let tag = tag(&plan);
        let context = self.session.context();
        let mut planned = context.execute_logical_plan(plan).await.map_err(failed)?;
        if let Some(values) = values {
            planned = planned.with_param_values(values).map_err(failed)?;
        }
        let schema = Arc::new(planned.schema().as_arrow().clone());
        let context = Arc::new(planned.task_ctx());
        let plan = planned.create_physical_plan().await.map_err(failed)?;
        let batches = self.session.run(plan, context, place).map_err(failed)?;
        if schema.fields().is_empty() {
            return Ok(Response::Execution(Tag::new(tag)));
        }
        Ok(query(batches, &schema, formats))
    }
}

/// What the client is told that a statement did.
fn tag(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Statement(_) => "SET",
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => "EXPLAIN",
        _ => "SELECT",
    }
}

/// A result that is written as it comes.
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

impl Answer {
    fn respond(&self, formats: Option<&Format>) -> Response {
        match self {
            Answer::Begin(tag) => Response::TransactionStart(Tag::new(tag)),
            Answer::End(tag) => Response::TransactionEnd(Tag::new(tag)),
            Answer::Done(tag) => Response::Execution(Tag::new(tag)),
            Answer::Shown(batch) => {
                let schema = batch.schema();
                let one = stream::iter([Ok(RecordBatch::clone(batch))]);
                let batches = RecordBatchStreamAdapter::new(Arc::clone(&schema), one);
                query(Box::pin(batches), &schema, formats)
            }
        }
    }
}

/// Has a response end when the client cancels, while its rows are on their way, too. This must be the
/// last thing that waits: the one who waits for the cancellation before lets go.
async fn cancellable<C: ClientInfo>(client: &C, response: Response) -> Response {
    let Response::Query(mut query) = response else {
        return response;
    };
    let Some(handle) = client.session_extensions().get::<Arc<ConnectionHandle>>() else {
        return Response::Query(query);
    };
    let cancelled = handle.start_query().await;
    let fields = query.row_schema();
    let command = query.command_tag().to_owned();
    let rows = std::mem::replace(query.data_rows(), Box::pin(stream::empty()));
    let mut query = QueryResponse::new(fields, until(rows, cancelled));
    query.set_command_tag(&command);
    Response::Query(query)
}

/// Rows, until somebody cancels.
fn until(
    rows: impl Stream<Item = PgWireResult<DataRow>> + Send + Unpin,
    cancelled: oneshot::Receiver<()>,
) -> impl Stream<Item = PgWireResult<DataRow>> + Send {
    let state = Some((rows, cancelled));
    stream::unfold(state, |state| async move {
        let (mut rows, mut cancelled) = state?;
        tokio::select! {
            biased;
            // A sender that is gone cancels nothing.
            Ok(()) = &mut cancelled => Some((Err(PgWireError::QueryCanceled), None)),
            row = rows.next() => row.map(|row| (row, Some((rows, cancelled)))),
        }
    })
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn do_query<C>(&self, client: &mut C, text: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let script = cut(text);
        let rest = script.rest.map(Part::Statement);
        let mut responses = Vec::new();
        for part in script.parts.into_iter().chain(rest) {
            let sql = match part {
                Part::Statement(sql) => sql,
                Part::Command(line) => {
                    return Err(error(SYNTAX, format!("{line} is no statement")));
                }
            };
            responses.push(match answer(&sql) {
                Some(answer) => answer.respond(None),
                None => self.run(&sql, None, None).await?,
            });
        }
        // Only the last one's rows can be cancelled while they are on their way.
        if let Some(last) = responses.pop() {
            responses.push(cancellable(client, last).await);
        }
        Ok(responses)
    }
}

#[async_trait]
impl QueryParser for Handler {
    type Statement = Prepared;

    async fn parse_sql<C>(
        &self,
        _: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<Prepared>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let answer = answer(sql);
        let plan = match answer {
            Some(_) => None,
            None => {
                let plan = self.session.logical(sql).await;
                Some(Arc::new(plan.map_err(|failed| of_query(&failed))?))
            }
        };
        Ok(Some(Prepared {
            sql: sql.to_owned(),
            answer,
            plan,
        }))
    }

    fn get_parameter_types(&self, prepared: &Prepared) -> PgWireResult<Vec<Type>> {
        match &prepared.plan {
            Some(plan) => parameters::types_of(plan),
            None => Ok(Vec::new()),
        }
    }

    fn get_result_schema(
        &self,
        prepared: &Prepared,
        formats: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        let schema = match (&prepared.plan, &prepared.answer) {
            (Some(plan), _) => Arc::new(plan.schema().as_arrow().clone()),
            (None, Some(Answer::Shown(batch))) => batch.schema(),
            (None, _) => return Ok(Vec::new()),
        };
        Ok(types::fields(&schema, formats).to_vec())
    }
}

/// What the extended protocol needs of a [`Handler`].
pub(crate) struct Extended(pub(crate) Arc<Handler>);

#[async_trait]
impl ExtendedQueryHandler for Extended {
    type Statement = Prepared;
    type QueryParser = Handler;

    fn query_parser(&self) -> Arc<Handler> {
        Arc::clone(&self.0)
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Prepared>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &portal.statement.statement;
        let formats = Some(&portal.result_column_format);
        if let Some(answer) = &prepared.answer {
            return Ok(answer.respond(formats));
        }
        let inferred = self.0.get_parameter_types(prepared)?;
        let values = parameters::values(portal, &inferred)?;
        let values = (!values.is_empty()).then(|| ParamValues::from(values));
        let response = self.0.run(&prepared.sql, values, formats).await?;
        Ok(cancellable(client, response).await)
    }

    /// All rows at once are written as they come; some at a time are kept between the requests.
    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Prepared>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let ready = matches!(client.state(), PgWireConnectionState::ReadyForQuery);
        let portal = match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) if ready && message.max_rows == 0 => portal,
            _ => return self._on_execute(client, message).await,
        };
        let state = portal.state();
        let new = matches!(*state.lock().await, PortalExecutionState::Initial);
        if !new || portal.statement.statement.answer.is_some() {
            return self._on_execute(client, message).await;
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        let cancelled = match client.session_extensions().get::<Arc<ConnectionHandle>>() {
            Some(handle) => handle.start_query().await,
            None => oneshot::channel().1,
        };
        let response = tokio::select! {
            biased;
            response = self.do_query(client, &portal, 0) => response?,
            Ok(()) = cancelled => return Err(PgWireError::QueryCanceled),
        };
        *state.lock().await = PortalExecutionState::Finished;
        match response {
            Response::Query(query) => send_query_response(client, query, false).await?,
            Response::Execution(tag) => send_execution_response(client, tag).await?,
            _ => return Err(error(SYNTAX, "this statement has no answer here")),
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }
}
