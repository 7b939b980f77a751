//! A query's job, and its parameters in the experiment.

use crate::parameters::Param;
use crate::run_context::StorageMedium;
use crate::target::{
    OperatorPlacement, QueryJob, QueryTable, QueryVariant, ResultTransport, TpchQuery,
};

/// The page size of the paper's table 4.6, at which other parameters are swept, too.
pub(super) const USUAL_KIB: usize = 16;

/// Returns a query in one of the sweeps.
pub(super) fn job(
    query: TpchQuery,
    variant: QueryVariant,
    placement: OperatorPlacement,
) -> QueryJob {
    QueryJob {
        query,
        data: QueryTable {
            place: StorageMedium::Disk,
            variant,
            page_kib: USUAL_KIB,
        },
        placement,
        transport: match placement {
            OperatorPlacement::Local => ResultTransport::None,
            _ => ResultTransport::Shm,
        },
        threads: 1,
        connections: 1,
        io_threads: None,
        pinned: false,
    }
}

/// Returns the parameters of a query in a sweep; `readers` is the number of its threads that read.
pub(super) fn at(sweep: &str, readers: usize, job: &QueryJob) -> [(&'static str, Param); 11] {
    [
        ("sweep", sweep.into()),
        ("place", job.data.place.name().into()),
        ("variant", job.data.variant.name().into()),
        ("query", job.query.name().into()),
        ("page-size", job.data.page_kib.into()),
        ("threads", job.threads.into()),
        ("connections", job.connections.into()),
        ("io-threads", readers.into()),
        ("pinned", if job.pinned { "yes" } else { "no" }.into()),
        ("road", job.transport.name().into()),
        ("way", job.placement.name().into()),
    ]
}
