//! The configuration file: options of the command line, written down in TOML.
//!
//! ```toml
//! listen = "127.0.0.1:6390"
//! redis = ["127.0.0.1:7001", "127.0.0.1:7002"]
//! queue = 8192
//! insecure = false
//! log-level = "info,kumiki_proxy=debug"
//! ```
//!
//! | option | in the file |
//! |---|---|
//! | `--name VALUE` | `name = "VALUE"`; numbers without quotes, too |
//! | `--name A,B` | `name = ["A", "B"]`, or as above |
//! | `--name` | `name = true`; `false` is as if it were not there |
//!
//! 1. An option on the command line overrides the file's, and also those in the file that conflict
//!    with it.
//! 2. Values are checked by the rules of the command line, so that the two cannot differ.
//! 3. All mistakes are reported at once, each with its line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The name of the option that names the file.
const CONFIG: &str = "config";
/// Options with passwords, by their ids: other users must not be able to read a file with them.
const SECRETS: [&str; 2] = ["requirepass", "node_password"];
/// The option that is read again while the process runs.
const LOG_LEVEL: &str = "log-level";

/// Adds the options of the file that the arguments name, if they name one, behind the arguments.
///
/// # Errors
/// The text lists all mistakes in the file.
pub(crate) fn expand(command: &Command, mut args: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut command = command.clone();
    command.build();
    // Mistakes in the arguments are reported when they are parsed.
    let lenient = command.clone().ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from(&args) else {
        return Ok(args);
    };
    let Some((name, given)) = matches.subcommand() else {
        return Ok(args);
    };
    let Ok(Some(path)) = given.try_get_one::<PathBuf>(CONFIG) else {
        return Ok(args);
    };
    let options = command.find_subcommand(name).expect("it was found");
    let text = read(path)?;
    let found = options_of(options, &text).map_err(|mistakes| tell(path, mistakes))?;
    if let Some(secret) = found
        .iter()
        .find(|option| SECRETS.contains(&option.id.as_str()))
    {
        let private = base::private::check(path);
        private.map_err(|error| {
            format!("{} has a password ({}): {error}", path.display(), secret.id)
        })?;
    }
    let kept = found
        .into_iter()
        .filter(|option| !is_overruled(options, given, option));
    args.extend(kept.flat_map(|option| option.args));
    Ok(args)
}

/// Returns the log level in the file, if it has one.
///
/// # Errors
/// The file cannot be read, is not TOML, or has a level that is not a text.
pub(crate) fn log_level(path: &Path) -> Result<Option<String>, String> {
    let text = read(path)?;
    let table = parse(&text).map_err(|mistakes| tell(path, mistakes))?;
    let Some(value) = table.get_ref().get(LOG_LEVEL) else {
        return Ok(None);
    };
    match value.get_ref().as_str() {
        Some(level) => Ok(Some(level.to_owned())),
        None => {
            let mistake = wrong_type(&text, value, LOG_LEVEL, "a text such as \"debug\"");
            Err(tell(path, vec![mistake]))
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}; correct --config", path.display()))
}

/// A mistake in the file: its line and its description.
type Mistake = (usize, String);

/// Returns a line for each mistake, in the form that compilers use.
fn tell(path: &Path, mut mistakes: Vec<Mistake>) -> String {
    mistakes.sort();
    let lines = mistakes
        .into_iter()
        .map(|(line, what)| format!("{}:{line}: {what}", path.display()));
    lines.collect::<Vec<_>>().join("\n")
}

/// An option of the file.
struct Found {
    id: clap::Id,
    args: Vec<OsString>,
}

fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Vec<Mistake>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table);
    }
    let mistakes = errors.into_iter().map(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let what = format!("this is not TOML: {}", error.message());
        (line(text, at), what)
    });
    Err(mistakes.collect())
}

fn options_of(command: &Command, text: &str) -> Result<Vec<Found>, Vec<Mistake>> {
    let table = parse(text)?;
    let mut mistakes = Vec::new();
    let mut found = Vec::new();
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        let Some(option) = known(command).find(|option| option.get_long() == Some(name)) else {
            let names: Vec<&str> = known(command).filter_map(Arg::get_long).collect();
            let what = format!("{name} is no setting; there are {}", names.join(", "));
            mistakes.push((line(text, key.span().start), what));
            continue;
        };
        match arguments(text, option, name, value) {
            Ok(args) => match judge(command, &args) {
                Some(what) => mistakes.push((line(text, value.span().start), what)),
                None => found.push(Found {
                    id: option.get_id().clone(),
                    args,
                }),
            },
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() {
        Ok(found)
    } else {
        Err(mistakes)
    }
}

/// Returns the options that may stand in a file.
fn known(command: &Command) -> impl Iterator<Item = &Arg> {
    let others = [CONFIG, "help", "version"];
    let options = command.get_arguments();
    options.filter(move |option| {
        option
            .get_long()
            .is_some_and(|long| !others.contains(&long))
    })
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

/// Returns the option in the form of the command line.
fn arguments(
    text: &str,
    option: &Arg,
    name: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<OsString>, Mistake> {
    if is_flag(option) {
        return match value.get_ref().as_bool() {
            Some(true) => Ok(vec![format!("--{name}").into()]),
            Some(false) => Ok(Vec::new()),
            None => Err(wrong_type(text, value, name, "true or false")),
        };
    }
    let takes_list = option.get_value_delimiter().is_some();
    let values = match value.get_ref() {
        DeValue::Array(items) if takes_list => {
            let items = items.iter().map(|item| scalar(text, name, item));
            items.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        _ => scalar(text, name, value)?,
    };
    Ok(vec![format!("--{name}={values}").into()])
}

fn scalar(text: &str, name: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    match value.get_ref() {
        DeValue::String(words) => Ok(words.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => {
            let wanted = "a text in quotes, or a decimal number";
            Err(wrong_type(text, value, name, wanted))
        }
    }
}

fn wrong_type(text: &str, value: &Spanned<DeValue<'_>>, name: &str, wanted: &str) -> Mistake {
    let found = value.get_ref().type_str();
    let what = format!("{name} is of the type {found}; write it as {wanted}");
    (line(text, value.span().start), what)
}

fn line(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns the error of the command line for this option alone, if it would refuse the value.
fn judge(command: &Command, args: &[OsString]) -> Option<String> {
    let name = OsString::from(command.get_name());
    let all = std::iter::once(&name).chain(args);
    let error = command.clone().try_get_matches_from(all).err()?;
    match error.kind() {
        // Conflicts with other options are checked when all options are together.
        ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => None,
        _ => {
            let told = error.render().to_string();
            let first = told.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = first.split_whitespace().skip(1).collect();
            Some(words.join(" "))
        }
    }
}

/// Returns `true` if the command line has the option, or another one that conflicts with it.
fn is_overruled(command: &Command, given: &ArgMatches, option: &Found) -> bool {
    let is_given = |id: &clap::Id| {
        given.try_contains_id(id.as_str()).unwrap_or(false)
            && given.value_source(id.as_str()) == Some(ValueSource::CommandLine)
    };
    if is_given(&option.id) {
        return true;
    }
    let own = command
        .get_arguments()
        .find(|arg| arg.get_id() == &option.id);
    let conflicts = own.map(|arg| command.get_arg_conflicts_with(arg));
    let in_conflict = conflicts.unwrap_or_default().into_iter().map(Arg::get_id);
    // A group allows one of its options.
    let groups = command.get_groups().filter(|group| {
        !(*group).clone().is_multiple() && group.get_args().any(|id| *id == option.id)
    });
    let rivals = groups.flat_map(|group| group.get_args());
    in_conflict.chain(rivals).any(is_given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Returns the arguments that the file adds.
    fn added(args: &[&str], file: &str) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("kumiki.toml");
        std::fs::write(&path, file).expect("a file");
        let path = path.to_string_lossy().into_owned();
        let mut all = vec!["kumiki", args[0], "--config", &path];
        all.extend(&args[1..]);
        let before = all.len();
        let all = all.iter().map(OsString::from).collect();
        let expanded = expand(&crate::cli::Cli::command(), all);
        let all = expanded.map_err(|text| text.replace(&path, "FILE"))?;
        let further = all.into_iter().skip(before);
        Ok(further
            .map(|arg| arg.into_string().expect("text"))
            .collect())
    }

    #[test]
    fn options_stand_in_the_file_as_on_the_command_line() {
        let file = "listen = \"127.0.0.1:1\"\nredis = [\"127.0.0.1:7001\", \"127.0.0.1:7002\"]\n\
                    queue = 9\ntimeout = \"2s\"\naffinity = [0, 1]\ninsecure = true\n\
                    log-level = \"debug\"\n";
        let mut all = added(&["proxy"], file).expect("options");
        all.sort();
        let expected = [
            "--affinity=0,1",
            "--insecure",
            "--listen=127.0.0.1:1",
            "--log-level=debug",
            "--queue=9",
            "--redis=127.0.0.1:7001,127.0.0.1:7002",
            "--timeout=2s",
        ];
        assert_eq!(all, expected);
        assert_eq!(
            added(&["proxy"], "insecure = false").expect("none").len(),
            0
        );
        let serve = added(&["serve"], "affinity = \"0:1\"\nephemeral = true\n");
        assert_eq!(serve.expect("options"), ["--affinity=0:1", "--ephemeral"]);
    }

    #[test]
    fn the_command_line_wins() {
        let file = "cluster = \"c.toml\"\nqueue = 9\nlog-level = \"debug\"\n";
        let all = added(&["proxy", "--queue", "5", "--redis", "a:1"], file);
        assert_eq!(all.expect("options"), ["--log-level=debug"]);
        let all = added(&["proxy", "--queue=5", "--log-level=warn"], file);
        assert_eq!(all.expect("options"), ["--cluster=c.toml"]);
        let all = added(&["serve", "--ephemeral"], "data = \"d\"\nthreads = 1\n");
        assert_eq!(all.expect("options"), ["--threads=1"]);
    }

    #[test]
    fn all_mistakes_are_told_with_their_lines() {
        let file = "queue = 0\nquue = 5\n\nlisten = \"here\"\ninsecure = 1\nredis = [[1]]\n\
                    config = \"x\"\ntimeout = { s = 1 }\nlog-level = \"loud\"\n";
        let told = added(&["proxy"], file).expect_err("mistakes");
        let lines: Vec<&str> = told.lines().collect();
        for (line, words) in lines.iter().zip([
            "FILE:1: invalid value '0' for '--queue",
            "FILE:2: quue is no setting; there are listen, cluster, redis",
            "FILE:4: invalid value 'here' for '--listen",
            "FILE:5: insecure is of the type integer; write it as true or false",
            "FILE:6: redis is of the type array",
            "FILE:7: config is no setting",
            "FILE:8: timeout is of the type table",
            "FILE:9: invalid value 'loud' for '--log-level",
        ]) {
            assert!(line.starts_with(words), "{line} is not {words}");
        }
        assert_eq!(lines.len(), 8, "{told}");
        let told = added(&["proxy"], "queue = 1\nqueue 2\n").expect_err("mistakes");
        assert!(told.starts_with("FILE:2: this is not TOML"), "{told}");
        let told = added(&["proxy"], "queue = 1\nqueue = 2\n").expect_err("mistakes");
        assert!(told.starts_with("FILE:2: "), "{told}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let all = ["kumiki", "proxy", "--config", "/nowhere/x"].map(OsString::from);
        let told = expand(&crate::cli::Cli::command(), all.to_vec()).expect_err("no file");
        assert!(
            told.contains("/nowhere/x") && told.contains("--config"),
            "{told}"
        );
    }
}
