//! The figures of `query-placement`, and the comparisons with the paper's values.

use super::query_params::{at, job};
use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{OperatorPlacement, QueryVariant, ResultTransport, TpchQuery};

pub(super) const PLACED: [OperatorPlacement; 3] = [
    OperatorPlacement::Local,
    OperatorPlacement::RemoteLocal,
    OperatorPlacement::RemoteRemote,
];
/// Paper 4, table 4.5.
const PAPER_SELECTIVITY: [(TpchQuery, &str); 3] = [
    (TpchQuery::Q1, "0.97"),
    (TpchQuery::Q6, "0.013"),
    (TpchQuery::Q15, "0.15"),
];

/// The figures of each query in the paper, and here.
type Sweep = [(TpchQuery, &'static str, &'static str); 3];

pub(super) fn plots() -> Vec<Plot> {
    let names = PLACED.map(|placement| Param::from(placement.name()));
    let lines = |x, series| PlotKind::Lines {
        x,
        y: "query-time",
        series,
        doubling: true,
    };
    let plot = |title, caption, shape, sweep: &str, variant: QueryVariant, query: TpchQuery| Plot {
        title,
        caption,
        shape,
        only: vec![
            ("sweep", vec![sweep.into()]),
            ("place", vec![StorageMedium::Disk.name().into()]),
            ("variant", vec![variant.name().into()]),
            ("query", vec![query.name().into()]),
            (
                "road",
                vec![
                    ResultTransport::None.name().into(),
                    ResultTransport::Shm.name().into(),
                ],
            ),
            ("way", names.to_vec()),
        ],
        paper: Vec::new(),
    };
    let mut plots = Vec::new();
    let sweeps: [(&str, Sweep); 2] = [
        (
            "io-threads",
            [
                (
                    TpchQuery::Q1,
                    "Q1, condition: by threads that read",
                    "After figure 4.32.",
                ),
                (
                    TpchQuery::Q6,
                    "Q6, condition: by threads that read",
                    "After figure 4.35.",
                ),
                (
                    TpchQuery::Q15,
                    "Q15, condition: by threads that read",
                    "After figure 4.38.",
                ),
            ],
        ),
        (
            "connections",
            [
                (
                    TpchQuery::Q1,
                    "Q1, condition: by connections",
                    "After figure 4.33.",
                ),
                (
                    TpchQuery::Q6,
                    "Q6, condition: by connections",
                    "After figure 4.36.",
                ),
                (
                    TpchQuery::Q15,
                    "Q15, condition: by connections",
                    "After figure 4.39.",
                ),
            ],
        ),
    ];
    for (sweep, of) in sweeps {
        for (query, title, caption) in of {
            let shape = lines(sweep, &["way"]);
            plots.push(plot(
                title,
                caption,
                shape,
                sweep,
                QueryVariant::Where,
                query,
            ));
        }
    }
    let sizes: [(QueryVariant, TpchQuery, &'static str, &'static str); 6] = [
        (
            QueryVariant::Where,
            TpchQuery::Q1,
            "Q1, condition: by page size",
            "After figure 4.34.",
        ),
        (
            QueryVariant::Where,
            TpchQuery::Q6,
            "Q6, condition: by page size",
            "After figure 4.37.",
        ),
        (
            QueryVariant::Where,
            TpchQuery::Q15,
            "Q15, condition: by page size",
            "After figure 4.40.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q1,
            "Q1 with aggregates, columns: by page size",
            "Ours.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q6,
            "Q6 with aggregates, columns: by page size",
            "Ours.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q15,
            "Q15 with aggregates, columns: by page size",
            "Ours.",
        ),
    ];
    for (variant, query, title, caption) in sizes {
        let shape = lines("page-size", &["way", "threads"]);
        plots.push(plot(title, caption, shape, "pages", variant, query));
    }
    plots
}

pub(super) fn compare() -> Vec<Compare> {
    let usual =
        |query, placement| at("pages", 1, &job(query, QueryVariant::Where, placement)).to_vec();
    let value = |what, paper, metric, placement| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: usual(TpchQuery::Q1, placement),
        },
        aim: None,
    };
    let [local, far, there] = PLACED;
    let mut rows = vec![
        value(
            "Q1, condition, 16 KiB: local, s",
            Some("24.8"),
            "query-time",
            local,
        ),
        value("… remote-local, s", Some("15.8"), "query-time", far),
        value("… remote-remote, s", Some("14.5"), "query-time", there),
    ];
    for (placement, what, paper) in [
        (far, "… remote-local, by local", "0.64"),
        (there, "… remote-remote, by local", "0.58"),
    ] {
        rows.push(Compare {
            what,
            paper: Some(paper),
            ours: Measure::Ratio {
                metric: "query-time",
                of: usual(TpchQuery::Q1, placement),
                to: usual(TpchQuery::Q1, local),
            },
            aim: None,
        });
    }
    rows.extend([
        value(
            "… local: cores busy here",
            Some("0.6 % of all"),
            "busy-here",
            local,
        ),
        value(
            "… remote-local: here",
            Some("50 % of all"),
            "busy-here",
            far,
        ),
        value("… on the node", Some("6 % of all"), "busy-there", far),
        value(
            "… remote-remote: here",
            Some("100 % of all"),
            "busy-here",
            there,
        ),
        value("… on the node", Some("100 % of all"), "busy-there", there),
    ]);
    for (query, paper) in PAPER_SELECTIVITY {
        rows.push(Compare {
            what: match query {
                TpchQuery::Q1 => "selectivity of Q1",
                TpchQuery::Q6 => "selectivity of Q6",
                TpchQuery::Q15 => "selectivity of Q15's sub-query",
            },
            paper: Some(paper),
            ours: Measure::Value {
                metric: "selectivity",
                at: usual(query, local),
            },
            aim: None,
        });
    }
    let tally = |what, paper, metric, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: vec![("sweep", "tally".into())],
        },
        aim,
    };
    let alike = Some("about the same");
    rows.extend([
        tally(
            "128 KiB: slowest placement by quickest, median",
            alike,
            "spread",
            Some(Aim::AtMost(1.15)),
        ),
        tally("… at most", alike, "spread-most", Some(Aim::AtMost(1.15))),
        tally(
            "auto within 10 % of the best placement: part of the grid",
            None,
            "near-best",
            Some(Aim::AtLeast(0.9)),
        ),
        tally(
            "… the placement that it chose",
            None,
            "well-chosen",
            Some(Aim::AtLeast(0.9)),
        ),
    ]);
    rows
}
