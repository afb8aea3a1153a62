//! Ids of responses and of their items. Both are derived from the id of the run, so that they survive a restart and are the same
//! however often an answer is read.
//!
//! ```text
//! resp_<run>          a response; <run> has no hyphens
//! msg_<run>_<index>   an item of its output; the prefix depends on the kind
//! msg_<run>_in<index> an item of its input
//! ```

use uuid::Uuid;

const RESPONSE: &str = "resp_";

/// The id of the response to a run.
pub(super) fn response(run: &str) -> String {
    format!("{RESPONSE}{}", compact(run))
}

/// The run of a response. `None` if this is no id of a response.
pub(super) fn run_of_response(id: &str) -> Option<String> {
    hyphenated(id.strip_prefix(RESPONSE)?)
}

/// The id of an output item.
pub(super) fn item(prefix: &str, run: &str, index: usize) -> String {
    format!("{prefix}_{}_{index}", compact(run))
}

/// The id of an input item.
pub(super) fn input_item(run: &str, index: usize) -> String {
    format!("msg_{}_in{index}", compact(run))
}

/// The run of an item, of its output or of its input.
pub(super) fn run_of_item(id: &str) -> Option<String> {
    let (_prefix, rest) = id.split_once('_')?;
    hyphenated(rest.split_once('_')?.0)
}

fn compact(run: &str) -> String {
    run.replace('-', "")
}

fn hyphenated(compact: &str) -> Option<String> {
    let run = Uuid::try_parse(compact).ok().filter(|_| compact.len() == uuid::fmt::Simple::LENGTH)?;
    // Only one spelling, so that an id has one form.
    Some(run.to_string()).filter(|run| self::compact(run) == compact)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "01a1e9c4-2a49-76a6-bf90-9dbc3a2f6e01";

    #[test]
    fn run_is_found_by_the_ids_that_are_derived_from_it() {
        assert_eq!(response(RUN), "resp_01a1e9c42a4976a6bf909dbc3a2f6e01");
        assert_eq!(run_of_response(&response(RUN)).as_deref(), Some(RUN));
        for id in [item("msg", RUN, 12), item("rs", RUN, 0), input_item(RUN, 3)] {
            assert_eq!(run_of_item(&id).as_deref(), Some(RUN), "{id}");
        }
    }

    #[test]
    fn other_ids_name_no_run() {
        for id in [
            "",
            "resp_",
            RUN,
            "resp_01a1e9c4-2a49-76a6-bf90-9dbc3a2f6e01",
            "resp_01A1E9C42A4976A6BF909DBC3A2F6E01",
            "resp_../../../../etc/passwd/000000000",
            "resp_01a1e9c42a4976a6bf909dbc3a2f6e0",
        ] {
            assert_eq!(run_of_response(id), None, "{id}");
        }
        for id in ["msg", "msg_", "msg_1_2", "msg_01a1e9c42a4976a6bf909dbc3a2f6e01"] {
            assert_eq!(run_of_item(id), None, "{id}");
        }
    }
}
