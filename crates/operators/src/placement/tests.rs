use super::*;

/// Returns a million rows in 128-KiB pages, of which a thousand rows of 100 bytes come out.
fn estimate() -> Estimate {
    Estimate {
        pages: 300,
        page_bytes: 300 << 17,
        rows: 1_000_000,
        selectivity: 0.1,
        operations: (5, 10),
        result_rows: 1000,
        result_bytes: 100_000,
    }
}

fn side(load: f64) -> SideCosts {
    SideCosts {
        page_s: 30e-6,
        operation_s: 0.5e-9,
        load,
        threads: 2.0,
    }
}

/// Returns a link of a gigabyte each second.
fn link() -> LinkCosts {
    LinkCosts {
        round_trip_s: 50e-6,
        page_s: 131e-6,
        byte_s: 1e-9,
    }
}

fn costs(has_pages: bool) -> PlacementCosts {
    PlacementCosts {
        server: side(0.0),
        node: Some((side(0.0), link())),
        has_pages,
    }
}

fn auto(estimate: &Estimate, costs: &PlacementCosts) -> Placement {
    choose(Placement::Auto, estimate, costs)
        .chosen
        .expect("a placement")
}

#[test]
fn what_is_here_is_worked_on_here() {
    assert_eq!(auto(&estimate(), &costs(true)), Placement::Local);
}

#[test]
fn what_is_elsewhere_is_worked_on_there_if_little_comes_out() {
    assert_eq!(auto(&estimate(), &costs(false)), Placement::RemoteRemote);
    // More comes out than went in.
    let much = Estimate {
        result_bytes: 3 * estimate().page_bytes,
        ..estimate()
    };
    assert_eq!(auto(&much, &costs(false)), Placement::RemoteLocal);
}

#[test]
fn a_busy_node_only_sends_pages() {
    let mut costs = costs(false);
    costs.node = Some((side(100.0), link()));
    assert_eq!(auto(&estimate(), &costs), Placement::RemoteLocal);
    // The server had better work itself if the node has even less time.
    costs.server.load = 150.0;
    assert_eq!(auto(&estimate(), &costs), Placement::RemoteRemote);
}

#[test]
fn a_slow_disk_here_is_not_asked() {
    let mut costs = costs(true);
    costs.server.page_s = 5e-3;
    assert_eq!(auto(&estimate(), &costs), Placement::RemoteRemote);
    costs.node = None;
    assert_eq!(auto(&estimate(), &costs), Placement::Local);
}

#[test]
fn what_pages_take_of_processors_counts() {
    let seconds = |page: PageWork| -> Vec<f64> {
        let choice = choose_with(Placement::Auto, &estimate(), &costs(true), &page);
        let seconds = choice.candidates.iter().map(|candidate| candidate.seconds);
        seconds.map(|seconds| seconds.expect("a time")).collect()
    };
    let bare = seconds(PageWork::default());
    let choice = choose(Placement::Auto, &estimate(), &costs(true));
    let same = choice.candidates.iter().map(|candidate| candidate.seconds);
    assert!(same.eq(bare.iter().copied().map(Some)));
    // 300 pages of 1 ms on two threads, beside less than that of work.
    let own = seconds(PageWork {
        local_page_s: 1e-3,
        ..PageWork::default()
    });
    assert!(
        own[0] > 0.15 && own[2] > 0.15 && own[1] == bare[1],
        "{own:?}"
    );
    let taken = PageWork {
        fetched_page_s: 1e-3,
        served_page_s: 2e-3,
        ..PageWork::default()
    };
    let apart = seconds(taken);
    assert!(
        apart[1] > 0.15 && apart[1] < 0.16 && apart[0] == bare[0],
        "{apart:?}"
    );
    // On one machine, the processor's time for the node is no longer available here.
    let shared = seconds(PageWork {
        shared: Some(2.0),
        ..taken
    });
    assert!(shared[1] > 0.45 && shared[1] < 0.46, "{shared:?}");
}

#[test]
fn what_a_cache_has_does_not_travel() {
    let chosen = |cached: f64| {
        let page = PageWork {
            cached,
            ..PageWork::default()
        };
        choose_with(Placement::Auto, &estimate(), &costs(false), &page)
    };
    let (cold, half, warm) = (chosen(0.0), chosen(0.5), chosen(1.0));
    assert_eq!(cold.chosen, Some(Placement::RemoteRemote));
    assert_eq!(warm.chosen, Some(Placement::RemoteLocal));
    let seconds = |choice: &Choice| choice.candidates[1].seconds.expect("a time");
    // The link is by far the slowest part: 300 pages of 131 µs.
    let link = 300.0 * link().page_s;
    let spared = seconds(&cold) - seconds(&half);
    assert!(
        (spared / (link / 2.0) - 1.0).abs() < 0.02,
        "{spared} of {link}"
    );
    assert!(seconds(&half) > seconds(&warm));
    let why = &half.candidates[1].why;
    assert!(
        why.starts_with("150 pages in the cache, 150 pages read there"),
        "{why}"
    );
    assert!(!cold.candidates[1].why.contains("cache"));
}

#[test]
fn a_node_s_own_time_for_pages_counts_if_it_is_known() {
    let seconds = |node_page_s| {
        let page = PageWork {
            local_page_s: 1e-3,
            node_page_s,
            ..PageWork::default()
        };
        let choice = choose_with(Placement::Auto, &estimate(), &costs(true), &page);
        [0, 2].map(|place| choice.candidates[place].seconds.expect("a time"))
    };
    let ([here, there], [same, quicker]) = (seconds(None), seconds(Some(0.5e-3)));
    assert_eq!(here, same);
    // 300 pages on two threads, each half a millisecond less.
    assert!((there - quicker - 0.075).abs() < 1e-4, "{there} {quicker}");
}

#[test]
fn what_goes_on_side_by_side_takes_as_long_as_the_longest_or_a_little_longer() {
    assert_eq!(together([0.0, 0.0]), 0.0);
    assert_eq!(together([2.0, 0.0, 0.0]), 2.0);
    assert!((together([2.0, 2.0]) / 2.0 - 1.189).abs() < 1e-3);
    assert!(together([0.1, 2.0, 0.5]) < 2.01);
    assert!(together([1.0, 2.0]) < together([1.5, 2.0]));
}

#[test]
fn more_work_never_costs_less() {
    let base = estimate();
    let more = [
        Estimate {
            pages: 600,
            page_bytes: 600 << 17,
            ..base
        },
        Estimate {
            rows: 2_000_000,
            ..base
        },
        Estimate {
            selectivity: 0.9,
            ..base
        },
        Estimate {
            operations: (6, 100),
            ..base
        },
        Estimate {
            result_bytes: 1 << 30,
            ..base
        },
    ];
    let times = |estimate: &Estimate| -> Vec<Option<f64>> {
        let choice = choose(Placement::Auto, estimate, &costs(true));
        choice
            .candidates
            .into_iter()
            .map(|candidate| candidate.seconds)
            .collect()
    };
    let before = times(&base);
    for more in more {
        let after = times(&more);
        assert!(
            before
                .iter()
                .zip(&after)
                .all(|(before, after)| before <= after),
            "{more:?}"
        );
    }
}

#[test]
fn what_is_wanted_is_chosen_if_it_is_possible() {
    let chosen = |wanted, has_pages| choose(wanted, &estimate(), &costs(has_pages)).chosen;
    assert_eq!(
        chosen(Placement::RemoteLocal, true),
        Some(Placement::RemoteLocal)
    );
    assert_eq!(chosen(Placement::Local, false), None);
    let alone = PlacementCosts {
        node: None,
        ..costs(false)
    };
    assert_eq!(choose(Placement::Auto, &estimate(), &alone).chosen, None);
}

#[test]
fn each_candidate_says_why() {
    let choice = choose(Placement::Auto, &estimate(), &costs(false));
    let texts: Vec<String> = choice.candidates.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts[0],
        "local: not possible: this machine does not have the pages"
    );
    assert_eq!(
        texts[2],
        "remote-remote: 9.2 ms: 300 pages read there in 9.0 ms, 1000000 rows (10.0 % pass) worked \
         on there in 1.8 ms (load 0.0), 1000 rows of 97.7 KiB over the link in 100 µs"
    );
}

#[test]
fn names_are_read_as_they_are_written() {
    for (placement, name) in NAMES {
        assert_eq!(placement.to_string(), name);
        assert_eq!(name.parse(), Ok(placement));
    }
    assert!("Local".parse::<Placement>().is_err());
}
