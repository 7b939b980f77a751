//! Backups in a store that speaks the protocol of S3.
//!
//! | operation | request |
//! |---|---|
//! | list | `GET /?list-type=2&prefix=…`, page by page |
//! | get | `GET /<object>` |
//! | put | `PUT /<object>`, with the SHA-256 of the content in the signature |
//! | put unless it is there | the same with `If-None-Match: *`, after a list |
//!
//! Objects are small enough for one request. A request that gets no answer, or one that says that the store is busy
//! (500, 503 and the like), is repeated.

mod http_connection;
mod listing;
mod settings;
mod signature;

use std::net::ToSocketAddrs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::utc::UtcTime;
use reactor::tls::{AuthorityFiles, BlockingStream, ClientTls};

use crate::object_store::{ObjectStore, StoreError, StoredObject};
use http_connection::{HttpConnection, Response};
pub use settings::S3Settings;
use signature::{SignedRequest, encode_path};

/// How long the store may take to take or give a part of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// A request is tried so often.
const TRIES: u32 = 6;
/// The time after the first try; it doubles.
const PAUSE: Duration = Duration::from_millis(200);

/// A store that speaks the protocol of S3.
pub struct S3Store {
    settings: S3Settings,
    host: String,
    /// The path of the bucket, without a slash at its end.
    path: String,
    tls: Option<ClientTls>,
    port: u16,
    connection: std::sync::Mutex<Option<HttpConnection>>,
}

impl S3Store {
    /// Returns the store. Nothing is sent yet.
    ///
    /// # Errors
    /// The text says what is wrong with the settings.
    pub fn new(settings: S3Settings) -> Result<S3Store, String> {
        let bucket = &settings.bucket;
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_plain) {
            return Err(format!(
                "'{bucket}' is no name of a bucket: write s3://BUCKET/PREFIX"
            ));
        }
        let url = match &settings.endpoint {
            Some(url) => url.clone(),
            // A certificate's * stands for one label.
            None if bucket.contains('.') => format!("https://s3.{}.amazonaws.com", settings.region),
            None => format!("https://{bucket}.s3.{}.amazonaws.com", settings.region),
        };
        let has_bucket_in_host = settings.endpoint.is_none() && !bucket.contains('.');
        let wrong =
            || format!("'{url}' is no URL of a store: write https://HOST or https://HOST:PORT");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_encrypted = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port.parse().map_err(|_| wrong())?),
            _ => (authority, if is_encrypted { 443 } else { 80 }),
        };
        let name = name.trim_matches(['[', ']']);
        let is_loopback = ["localhost", "127.0.0.1", "::1"].contains(&name);
        if !is_encrypted && !is_loopback {
            return Err(format!(
                "{url} is not encrypted: write https://, or use a store on this machine"
            ));
        }
        if name.is_empty() {
            return Err(wrong());
        }
        let tls = is_encrypted.then(|| {
            ClientTls::load(&AuthorityFiles {
                ca: settings.authorities.clone(),
                name: Some(name.to_owned()),
                own: None,
            })
        });
        let tls = tls.transpose().map_err(|error| error.to_string())?;
        let mut path = match path.trim_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        if !has_bucket_in_host {
            path = format!("{path}/{bucket}");
        }
        Ok(S3Store {
            host: authority.to_owned(),
            path,
            tls,
            port,
            connection: std::sync::Mutex::new(None),
            settings,
        })
    }

    fn key(&self, name: &str) -> String {
        match self.settings.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn connect(&self) -> std::io::Result<HttpConnection> {
        let name = self.host.rsplit_once(':');
        let name = name.filter(|(_, port)| !port.contains(']'));
        let name = name
            .map_or(self.host.as_str(), |(name, _)| name)
            .trim_matches(['[', ']']);
        let mut refusal = std::io::Error::other("the name has no address");
        for address in (name, self.port).to_socket_addrs()? {
            match BlockingStream::connect(address, self.tls.as_ref(), PATIENCE) {
                Ok(stream) => return Ok(HttpConnection::new(stream)),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// Sends a request, and sends it again if it gets no answer or the store is busy.
    fn request(
        &self,
        method: &str,
        key: Option<&str>,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, String> {
        let path = match key {
            Some(key) => format!("{}/{}", self.path, encode_path(key)),
            None if self.path.is_empty() => "/".to_owned(),
            None => self.path.clone(),
        };
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                std::thread::sleep(PAUSE * 2_u32.pow(attempt - 1));
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let request = SignedRequest {
                settings: &self.settings,
                host: &self.host,
                method,
                path: &path,
                query,
                headers,
                body,
                time: UtcTime(now.map_or(0, |now| now.as_millis() as u64)),
            };
            match self.exchange(&request.bytes(), body) {
                Ok(response) if response.is_temporary() => last = response.explanation(),
                Ok(response) => return Ok(response),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    /// Sends a request once, on the connection that there is or on a new one.
    fn exchange(&self, head: &[u8], body: &[u8]) -> std::io::Result<Response> {
        let mut place = self.connection.lock().expect("no thread panics with it");
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let response = connection.exchange(head, body)?;
        if response.keeps_connection {
            *place = Some(connection);
        }
        Ok(response)
    }

    fn failed(&self, action: &'static str, name: &str, why: impl std::fmt::Display) -> StoreError {
        StoreError::new(action, self.place(name), why)
    }

    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        headers: &[(&str, &str)],
    ) -> Result<Response, StoreError> {
        let response = self.request("PUT", Some(&self.key(name)), &[], headers, bytes);
        response.map_err(|why| self.failed("write", name, why))
    }
}

impl ObjectStore for S3Store {
    fn place(&self, name: &str) -> String {
        format!("s3://{}/{}", self.settings.bucket, self.key(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<StoredObject>, StoreError> {
        let (mut objects, mut token): (Vec<StoredObject>, Option<String>) = (Vec::new(), None);
        let prefix = self.key(prefix);
        loop {
            let mut query = vec![("list-type", "2"), ("prefix", prefix.as_str())];
            if let Some(token) = &token {
                query.push(("continuation-token", token.as_str()));
            }
            let response = self.request("GET", None, &query, &[], &[]);
            let response = response.map_err(|why| self.failed("list", "", why))?;
            if response.status != 200 {
                return Err(self.failed("list", "", response.explanation()));
            }
            let page = listing::parse(&response.body);
            let page = page.ok_or_else(|| self.failed("list", "", "its answer is malformed"))?;
            let own = match self.settings.prefix.as_str() {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            };
            objects.extend(page.objects.into_iter().filter_map(|object| {
                let name = object.name.strip_prefix(&own)?.to_owned();
                Some(StoredObject { name, ..object })
            }));
            token = page.next;
            if token.is_none() {
                objects.sort_by(|one, other| one.name.cmp(&other.name));
                return Ok(objects);
            }
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let response = self.request("GET", Some(&self.key(name)), &[], &[], &[]);
        let response = response.map_err(|why| self.failed("read", name, why))?;
        match response.status {
            200 => Ok(Some(response.body)),
            404 if response.code() == "NoSuchKey" => Ok(None),
            _ => Err(self.failed("read", name, response.explanation())),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let response = self.write(name, bytes, &[])?;
        match response.status {
            200 => Ok(()),
            _ => Err(self.failed("write", name, response.explanation())),
        }
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        // Stores that do not know the header would replace the object.
        if self.list(name)?.iter().any(|object| object.name == name) {
            return Ok(false);
        }
        let response = self.write(name, bytes, &[("if-none-match", "*")])?;
        match response.status {
            200 => Ok(true),
            412 => Ok(false),
            _ => Err(self.failed("write", name, response.explanation())),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(bucket: &str, endpoint: Option<&str>) -> Result<S3Store, String> {
        S3Store::new(S3Settings {
            bucket: bucket.to_owned(),
            prefix: "a/b".to_owned(),
            endpoint: endpoint.map(str::to_owned),
            region: "eu-central-1".to_owned(),
            ..S3Settings::default()
        })
    }

    #[test]
    fn a_store_is_found_by_its_url() {
        let of = |bucket, endpoint| {
            let store = store(bucket, endpoint).unwrap_or_else(|error| panic!("{error}"));
            (store.host.clone(), store.port, store.path.clone())
        };
        let found = |host: &str, port, path: &str| (host.to_owned(), port, path.to_owned());
        assert_eq!(
            of("shop", Some("http://127.0.0.1:9000")),
            found("127.0.0.1:9000", 9000, "/shop")
        );
        assert_eq!(
            of("shop", Some("http://[::1]:9000/store/")),
            found("[::1]:9000", 9000, "/store/shop")
        );
        assert_eq!(
            of("shop", Some("http://localhost")),
            found("localhost", 80, "/shop")
        );
        let there = store("shop", Some("http://localhost:1")).expect("a store");
        assert_eq!(there.place("x/y"), "s3://shop/a/b/x/y");
        for (bucket, endpoint, word) in [
            ("", None, "bucket"),
            ("A b", None, "bucket"),
            ("shop", Some("http://example.com"), "not encrypted"),
            ("shop", Some("ftp://example.com"), "no URL"),
            ("shop", Some("example.com"), "no URL"),
            ("shop", Some("http://localhost:x"), "no URL"),
        ] {
            let error = store(bucket, endpoint).err().expect("refused");
            assert!(error.contains(word), "{error}");
        }
    }
}
