//! Statements of clients, by PostgreSQL's simple and its extended protocol.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{ParamValues, exec_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::channel::oneshot;
use futures::{Sink, Stream, StreamExt, TryStreamExt, stream};
use pgwire::api::copy::send_copy_out_response;
use pgwire::api::portal::{Format, Portal, PortalExecutionState};
use pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_execution_response, send_query_response,
};
use pgwire::api::results::{CopyResponse, FieldInfo, QueryResponse, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionHandle, DEFAULT_NAME, PgWireConnectionState, Type,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::CopyData;
use pgwire::messages::data::DataRow;
use pgwire::messages::extendedquery::Execute;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::serve::compatible::{self, Answer, answer};
use crate::serve::copy::{Copy, copy};
use crate::serve::errors::{CANCELLED, INVALID_SETTING, SYNTAX, TOO_MANY, error, of_query};
use crate::serve::system::System;
use crate::serve::timeout::{self, Timeout};
use crate::serve::{encode, parameters, types};
use crate::session::{Session, holding};
use crate::shell::script::{Part, cut};

/// How long a query waits for others to end before it is refused.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection's statements.
pub(crate) struct Handler {
    session: System,
    /// Queries that may run at once, of all connections.
    running: Arc<Semaphore>,
    /// How long a query waits for whoever takes its rows.
    patience: Option<Duration>,
    /// How long a statement may take.
    timeout: Timeout,
}

/// A statement that was prepared: what is known of it from its plan. When it is executed it is planned anew,
/// over the tables' newest versions.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sql: String,
    answer: Option<Answer>,
    parameters: Vec<Type>,
    columns: SchemaRef,
}

impl Handler {
    pub(crate) fn new(
        session: Session,
        running: &Arc<Semaphore>,
        patience: Option<Duration>,
    ) -> Handler {
        Handler {
            session: System::new(session),
            running: Arc::clone(running),
            patience,
            timeout: Timeout::default(),
        }
    }

    /// Answers a statement that is no query.
    fn respond(&self, answer: &Answer, formats: Option<&Format>) -> PgWireResult<Response> {
        let shown = |batch: RecordBatch| {
            let schema = batch.schema();
            let one = stream::iter([Ok(batch)]);
            let batches = RecordBatchStreamAdapter::new(Arc::clone(&schema), one);
            query(Box::pin(batches), &schema, formats)
        };
        Ok(match answer {
            Answer::Begin(tag) => Response::TransactionStart(Tag::new(tag)),
            Answer::End(tag) => Response::TransactionEnd(Tag::new(tag)),
            Answer::Done(tag) => Response::Execution(Tag::new(tag)),
            Answer::Limit(milliseconds, tag) => {
                self.timeout.set(*milliseconds);
                Response::Execution(Tag::new(tag))
            }
            Answer::Shown(batch) => shown(batch.clone()),
            Answer::ShownLimit => shown(compatible::shown(timeout::NAME, &self.timeout.show())),
            Answer::Refused(what) => return Err(error(INVALID_SETTING, what)),
        })
    }

    /// Answers one query, its rows in these formats, if it is planned in time.
    async fn run<C: ClientInfo>(
        &self,
        client: &C,
        sql: &str,
        values: Option<ParamValues>,
        formats: Option<&Format>,
    ) -> PgWireResult<Response> {
        if let Some(copy) = copy(sql) {
            let copy = copy.map_err(|(state, what)| error(state, what))?;
            let response = self.within(self.planned(&copy.sql, values, None)).await?;
            return Ok(copied(copy, ending(client, self.timeout.get(), response)));
        }
        let response = self.within(self.planned(sql, values, formats)).await?;
        Ok(ending(client, self.timeout.get(), response))
    }

    /// Has something end when a statement's time is over.
    async fn within<T>(&self, running: impl Future<Output = PgWireResult<T>>) -> PgWireResult<T> {
        match self.timeout.get() {
            None => running.await,
            Some(limit) => match tokio::time::timeout(limit, running).await {
                Ok(ended) => ended,
                Err(_) => Err(took_too_long()),
            },
        }
    }

    async fn planned(
        &self,
        sql: &str,
        values: Option<ParamValues>,
        formats: Option<&Format>,
    ) -> PgWireResult<Response> {
        let failed = |failed| of_query(&failed);
        let place = admitted(&self.running).await.map_err(failed)?;
        let plan = self.session.logical(sql).await.map_err(failed)?;
        let tag = tag(&plan);
        let context = self.session.session().context();
        let mut planned = context.execute_logical_plan(plan).await.map_err(failed)?;
        if let Some(values) = values {
            planned = planned.with_param_values(values).map_err(failed)?;
        }
        let schema = Arc::new(planned.schema().as_arrow().clone());
        let context = planned.task_ctx();
        let plan = planned.create_physical_plan().await.map_err(failed)?;
        drop(place);
        if schema.fields().is_empty() {
            return Ok(Response::Execution(Tag::new(tag)));
        }
        Ok(query(self.begun(plan, context), &schema, formats))
    }

    /// The rows of a plan that begins when the first of them is wanted, and there is a place for it: the
    /// statements of one message do not wait for each other's places.
    fn begun(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: TaskContext,
    ) -> SendableRecordBatchStream {
        let session = self.session.session().clone();
        let (running, patience) = (Arc::clone(&self.running), self.patience);
        let schema = plan.schema();
        let begin = async move {
            let place = admitted(&running).await?;
            session.run(plan, holding(context, place), patience)
        };
        let batches = stream::once(begin).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

/// A place among the queries that run.
async fn admitted(running: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, DataFusionError> {
    let place = Arc::clone(running).acquire_owned();
    match tokio::time::timeout(PATIENCE, place).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => exec_err!("{TOO_MANY}"),
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

/// Rows as the lines of a copy, the names of the columns with the first.
fn copied(copy: Copy, response: Response) -> Response {
    let Response::Query(mut query) = response else {
        return response;
    };
    let fields = query.row_schema();
    let columns = fields.len();
    let mut header = copy.header(fields.iter().map(FieldInfo::name));
    let rows = std::mem::replace(query.data_rows(), Box::pin(stream::empty()));
    let ends = stream::iter([None]);
    let lines = rows.map(Some).chain(ends).filter_map(move |row| {
        let header = header.take();
        let line = match row {
            Some(Ok(row)) => {
                let line = copy.line(&row);
                Some(Ok(header.map_or(line.clone(), |header| {
                    [header, line].concat().into()
                })))
            }
            Some(Err(failed)) => Some(Err(failed)),
            None => header.map(Ok),
        };
        std::future::ready(line.map(|line| line.map(CopyData::new)))
    });
    Response::CopyOut(CopyResponse::new(0, columns, lines))
}

/// Has a response end when the client cancels or the time is over, while its rows are on their way, too.
/// Whoever waits for the cancellation last is the one who hears of it: so this waits from the first row on,
/// when all that came before is through.
fn ending<C: ClientInfo>(client: &C, limit: Option<Duration>, response: Response) -> Response {
    let Response::Query(mut query) = response else {
        return response;
    };
    let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
    let handle = handle.as_deref().cloned();
    let fields = query.row_schema();
    let command = query.command_tag().to_owned();
    let rows = std::mem::replace(query.data_rows(), Box::pin(stream::empty()));
    let begin = async move {
        let cancelled = match handle {
            Some(handle) => handle.start_query().await,
            None => oneshot::channel().1,
        };
        until(rows, cancelled, limit)
    };
    let mut query = QueryResponse::new(fields, stream::once(begin).flatten());
    query.set_command_tag(&command);
    Response::Query(query)
}

/// Rows, until somebody cancels or the time is over.
fn until(
    rows: impl Stream<Item = PgWireResult<DataRow>> + Send + Unpin,
    cancelled: oneshot::Receiver<()>,
    limit: Option<Duration>,
) -> impl Stream<Item = PgWireResult<DataRow>> + Send {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let state = Some((rows, cancelled));
    stream::unfold(state, move |state| async move {
        let (mut rows, mut cancelled) = state?;
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // A sender that is gone cancels nothing.
            Ok(()) = &mut cancelled => Some((Err(PgWireError::QueryCanceled), None)),
            () = late => Some((Err(took_too_long()), None)),
            row = rows.next() => row.map(|row| (row, Some((rows, cancelled)))),
        }
    })
}

fn took_too_long() -> PgWireError {
    let what = "canceling statement due to statement timeout";
    error(CANCELLED, what)
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
                Some(answer) => self.respond(&answer, None)?,
                None => self.run(client, &sql, None, None).await?,
            });
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
        declared: &[Option<Type>],
    ) -> PgWireResult<Option<Prepared>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let answer = answer(sql);
        let (parameters, columns) = match &answer {
            Some(answer) => (Vec::new(), answer.columns()),
            None => {
                let copy = copy(sql).transpose();
                let copy = copy.map_err(|(state, what)| error(state, what))?;
                let query = copy.as_ref().map_or(sql, |copy| &copy.sql);
                let plan = self.session.logical(query).await;
                let plan = plan.map_err(|failed| of_query(&failed))?;
                let types = parameters::types_of(&plan, declared)?;
                // Lines of a copy are no rows.
                let columns = match copy {
                    None => parameters::columns(&plan, &types),
                    Some(_) => Arc::new(Schema::empty()),
                };
                (types, columns)
            }
        };
        Ok(Some(Prepared {
            sql: sql.to_owned(),
            answer,
            parameters,
            columns,
        }))
    }

    fn get_parameter_types(&self, prepared: &Prepared) -> PgWireResult<Vec<Type>> {
        Ok(prepared.parameters.clone())
    }

    fn get_result_schema(
        &self,
        prepared: &Prepared,
        formats: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        Ok(types::fields(&prepared.columns, formats).to_vec())
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
            return self.0.respond(answer, formats);
        }
        let values = parameters::values(portal, &prepared.parameters)?;
        let values = (!values.is_empty()).then(|| ParamValues::from(values));
        self.0.run(client, &prepared.sql, values, formats).await
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
            Response::CopyOut(copy) => send_copy_out_response(client, copy).await?,
            _ => return Err(error(SYNTAX, "this statement has no answer here")),
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }
}
