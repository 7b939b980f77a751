//! Commands on one sorted set.

use super::values::value;
use crate::command::CommandKind::Store;
use crate::command::{CommandDefinition, commands};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "sorted-set";
    "zadd" -4 "write denyoom fast" ONE("RW update") "sortedset" ""
        "1.2.0" "O(log(N)) for each member added, where N is the number of members in the sorted set.",
        Store(value::<{ values::sorted_sets::ZADD }>), "Adds members to a sorted set, or changes their scores; answers how many are new.";
    "zincrby" 4 "write denyoom fast" ONE("RW access update") "sortedset" ""
        "1.2.0" "O(log(N)) where N is the number of members in the sorted set.",
        Store(value::<{ values::sorted_sets::ZINCRBY }>), "Adds a number to the score of a member; answers the new score.";
    "zrem" -3 "write fast" ONE("RW delete") "sortedset" ""
        "1.2.0" "O(M*log(N)) with N members in the sorted set and M members to remove.",
        Store(value::<{ values::sorted_sets::ZREM }>), "Removes members; answers how many there were.";
    "zremrangebyrank" 4 "write" ONE("RW delete") "sortedset" ""
        "2.0.0" "O(log(N)+M) with N members in the sorted set and M removed ones.",
        Store(value::<{ values::sorted_sets::ZREMRANGEBYRANK }>), "Removes the members with ranks in a range; answers how many there were.";
    "zremrangebyscore" 4 "write" ONE("RW delete") "sortedset" ""
        "1.2.0" "O(log(N)+M) with N members in the sorted set and M removed ones.",
        Store(value::<{ values::sorted_sets::ZREMRANGEBYSCORE }>), "Removes the members with scores in a range; answers how many there were.";
    "zremrangebylex" 4 "write" ONE("RW delete") "sortedset" ""
        "2.8.9" "O(log(N)+M) with N members in the sorted set and M removed ones.",
        Store(value::<{ values::sorted_sets::ZREMRANGEBYLEX }>), "Removes the members in a range of bytes, where all scores are equal; answers how many there were.";
    "zpopmin" -2 "write fast" ONE("RW access delete") "sortedset" ""
        "5.0.0" "O(log(N)*M) with N members in the sorted set and M removed ones.",
        Store(value::<{ values::sorted_sets::ZPOPMIN }>), "Removes the members with the least scores, and answers them.";
    "zpopmax" -2 "write fast" ONE("RW access delete") "sortedset" ""
        "5.0.0" "O(log(N)*M) with N members in the sorted set and M removed ones.",
        Store(value::<{ values::sorted_sets::ZPOPMAX }>), "Removes the members with the greatest scores, and answers them.";
    "zcard" 2 "readonly fast" ONE("RO") "sortedset" ""
        "1.2.0" "O(1)",
        Store(value::<{ values::sorted_sets::ZCARD }>), "How many members a sorted set has.";
    "zcount" 4 "readonly fast" ONE("RO access") "sortedset" ""
        "2.0.0" "O(log(N)) where N is the number of members in the sorted set.",
        Store(value::<{ values::sorted_sets::ZCOUNT }>), "How many members have scores in a range.";
    "zlexcount" 4 "readonly fast" ONE("RO access") "sortedset" ""
        "2.8.9" "O(log(N)) where N is the number of members in the sorted set.",
        Store(value::<{ values::sorted_sets::ZLEXCOUNT }>), "How many members are in a range of bytes, where all scores are equal.";
    "zscore" 3 "readonly fast" ONE("RO access") "sortedset" ""
        "1.2.0" "O(1)",
        Store(value::<{ values::sorted_sets::ZSCORE }>), "The score of a member.";
    "zmscore" -3 "readonly fast" ONE("RO access") "sortedset" ""
        "6.2.0" "O(N) where N is the number of members asked for.",
        Store(value::<{ values::sorted_sets::ZMSCORE }>), "The scores of members.";
    "zrank" -3 "readonly fast" ONE("RO access") "sortedset" ""
        "2.0.0" "O(log(N))",
        Store(value::<{ values::sorted_sets::ZRANK }>), "The number of members before a member.";
    "zrevrank" -3 "readonly fast" ONE("RO access") "sortedset" ""
        "2.0.0" "O(log(N))",
        Store(value::<{ values::sorted_sets::ZREVRANK }>), "The number of members behind a member.";
    "zrange" -4 "readonly" ONE("RO access") "sortedset" ""
        "1.2.0" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZRANGE }>), "The members in a range of ranks, of scores or of bytes.";
    "zrevrange" -4 "readonly" ONE("RO access") "sortedset" ""
        "1.2.0" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZREVRANGE }>), "The members in a range of ranks, from the greatest score to the least.";
    "zrangebyscore" -4 "readonly" ONE("RO access") "sortedset" ""
        "1.0.5" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZRANGEBYSCORE }>), "The members with scores in a range.";
    "zrevrangebyscore" -4 "readonly" ONE("RO access") "sortedset" ""
        "2.2.0" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZREVRANGEBYSCORE }>), "The members with scores in a range, from the greatest score to the least.";
    "zrangebylex" -4 "readonly" ONE("RO access") "sortedset" ""
        "2.8.9" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZRANGEBYLEX }>), "The members in a range of bytes, where all scores are equal.";
    "zrevrangebylex" -4 "readonly" ONE("RO access") "sortedset" ""
        "2.8.9" "O(log(N)+M) with N members in the sorted set and M returned ones.",
        Store(value::<{ values::sorted_sets::ZREVRANGEBYLEX }>), "The members in a range of bytes, backwards, where all scores are equal.";
    "zrandmember" -2 "readonly" ONE("RO access") "sortedset" "nondeterministic_output"
        "6.2.0" "O(N) where N is the number of members returned.",
        Store(value::<{ values::sorted_sets::ZRANDMEMBER }>), "Members that are chosen at random.";
    "zscan" -3 "readonly" ONE("RO access") "sortedset" "nondeterministic_output"
        "2.8.0" "O(1) for every call. O(N) for a complete iteration.",
        Store(value::<{ values::sorted_sets::ZSCAN }>), "Members with their scores, a page at a time.";
};
