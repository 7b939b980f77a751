//! The place of backups, and their key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backup::{DirectoryStore, EncryptionKey, ObjectStore, Repository, S3Settings, S3Store};
use clap::Args;

use crate::passwords;

/// The key of encrypted backups.
#[derive(Args, Debug)]
pub(super) struct EncryptionOptions {
    /// A file with the key of encrypted backups: 64 hexadecimal digits, such as 'openssl rand -hex 32' prints. Other
    /// users must not be able to read it. Without the key the backups are lost: keep a copy elsewhere.
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
}

impl EncryptionOptions {
    /// Reads the key, if there is one.
    ///
    /// # Errors
    /// The text says what is wrong with the file.
    pub(super) fn open(&self) -> Result<Option<EncryptionKey>, String> {
        let Some(file) = &self.encryption_key_file else {
            return Ok(None);
        };
        let key = EncryptionKey::parse(&passwords::of_file(file)?);
        let key = key.map_err(|error| format!("cannot use {}: {error}", file.display()))?;
        Ok(Some(key))
    }
}

/// Returns the store at a place: a directory, or `s3://BUCKET/PREFIX`.
///
/// # Errors
/// The text says what is wrong with the place.
pub(super) fn store(place: &str) -> Result<Arc<dyn ObjectStore>, String> {
    if place.is_empty() {
        return Err("name a directory for the backups, or s3://BUCKET/PREFIX".to_owned());
    }
    let Some(place) = place.strip_prefix("s3://") else {
        return Ok(Arc::new(DirectoryStore::new(Path::new(place))));
    };
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let settings = settings(bucket, prefix, |name| std::env::var(name).ok())?;
    Ok(Arc::new(S3Store::new(settings)?))
}

/// Takes the settings of a store from the variables that tools of AWS use.
fn settings(
    bucket: &str,
    prefix: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<S3Settings, String> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let needed = |name: &str| {
        let missing = || format!("s3://{bucket} needs the environment variable {name}");
        given(name).ok_or_else(missing)
    };
    Ok(S3Settings {
        bucket: bucket.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
        endpoint: given("AWS_ENDPOINT_URL_S3").or_else(|| given("AWS_ENDPOINT_URL")),
        region: given("AWS_REGION")
            .or_else(|| given("AWS_DEFAULT_REGION"))
            .unwrap_or_else(|| "us-east-1".to_owned()),
        access_key: needed("AWS_ACCESS_KEY_ID")?,
        secret_key: needed("AWS_SECRET_ACCESS_KEY")?,
        session_token: given("AWS_SESSION_TOKEN"),
        authorities: given("AWS_CA_BUNDLE").map(PathBuf::from),
    })
}

/// Opens the backups at a place, to read them.
///
/// # Errors
/// The text says why they cannot be read.
pub(super) fn open(place: &str, key: &EncryptionOptions) -> Result<Repository, String> {
    let key = key.open()?;
    Repository::open(store(place)?, key).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_set_up_as_for_other_tools() {
        let with = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            settings("b", "p/q/", move |wanted| {
                let mut found = pairs.iter().filter(|(name, _)| name == wanted);
                found.next().map(|(_, value)| value.clone())
            })
        };
        let missing = with(&[("AWS_ACCESS_KEY_ID", "id")]).err().expect("refused");
        assert!(missing.contains("AWS_SECRET_ACCESS_KEY"), "{missing}");
        let keys = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
        ];
        let plain = with(&keys).expect("settings");
        assert_eq!(
            (plain.prefix.as_str(), plain.region.as_str()),
            ("p/q", "us-east-1")
        );
        assert!(plain.endpoint.is_none() && plain.session_token.is_none());
        let more = [
            ("AWS_ENDPOINT_URL", "http://localhost:1"),
            ("AWS_DEFAULT_REGION", "eu-west-1"),
            ("AWS_SESSION_TOKEN", ""),
        ];
        let full = with(&[&keys[..], &more].concat()).expect("settings");
        assert_eq!(full.endpoint.as_deref(), Some("http://localhost:1"));
        assert!(full.region == "eu-west-1" && full.session_token.is_none());
    }
}
