//! Signatures of requests (AWS Signature Version 4).

use std::fmt::Write as _;

use base::utc::UtcTime;
use ring::{digest, hmac};

use super::settings::S3Settings;

/// A request that is to be signed.
pub(super) struct SignedRequest<'a> {
    pub(super) settings: &'a S3Settings,
    pub(super) host: &'a str,
    pub(super) method: &'a str,
    /// Encoded.
    pub(super) path: &'a str,
    /// Not encoded.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// In lower case.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
    pub(super) time: UtcTime,
}

impl SignedRequest<'_> {
    /// Returns the head of the request.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (query, mut headers) = (self.canonical_query(), self.signed_headers());
        headers.push(("authorization", self.authorization(&query, &headers)));
        headers.push(("content-length", self.body.len().to_string()));
        let question = if query.is_empty() { "" } else { "?" };
        let mut head = format!(
            "{} {}{question}{query} HTTP/1.1\r\n",
            self.method, self.path
        );
        for (name, value) in &headers {
            write!(head, "{name}: {value}\r\n").expect("a string takes everything");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Returns the headers that are signed, in the order of their names.
    fn signed_headers(&self) -> Vec<(&str, String)> {
        let mut headers = vec![
            ("host", self.host.to_owned()),
            (
                "x-amz-content-sha256",
                hex(digest::digest(&digest::SHA256, self.body).as_ref()),
            ),
            ("x-amz-date", self.stamp()),
        ];
        let token = self.settings.session_token.iter();
        headers.extend(token.map(|token| ("x-amz-security-token", token.clone())));
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        headers.sort();
        headers
    }

    fn stamp(&self) -> String {
        let (year, month, day) = self.time.date();
        let (hour, minute, second, _) = self.time.time_of_day();
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }

    fn canonical_query(&self) -> String {
        let pairs = self.query.iter();
        let mut pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        pairs.sort();
        pairs.join("&")
    }

    fn authorization(&self, query: &str, headers: &[(&str, String)]) -> String {
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let (names, body) = (names.join(";"), &digest::digest(&digest::SHA256, self.body));
        let mut canonical = format!("{}\n{}\n{query}\n", self.method, self.path);
        for (name, value) in headers {
            writeln!(canonical, "{name}:{}", value.trim()).expect("a string takes everything");
        }
        write!(canonical, "\n{names}\n{}", hex(body.as_ref())).expect("a string takes everything");
        let (stamp, region) = (self.stamp(), &self.settings.region);
        let day = &stamp[..8];
        let scope = format!("{day}/{region}/s3/aws4_request");
        let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
        let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hex(hash.as_ref()));
        let mut key = format!("AWS4{}", self.settings.secret_key).into_bytes();
        for part in [day, region, "s3", "aws4_request"] {
            key = sign(&key, part);
        }
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.settings.access_key,
            hex(&sign(&key, &to_sign))
        )
    }
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes everything");
        }
    }
    encoded
}

/// Encodes the name of an object for a URL. The slashes stay.
pub(super) fn encode_path(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(encode).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the documentation of AWS.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let settings = S3Settings {
            region: "us-east-1".to_owned(),
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            ..S3Settings::default()
        };
        let request = SignedRequest {
            settings: &settings,
            host: "examplebucket.s3.amazonaws.com",
            method: "GET",
            path: "/",
            query: &[("lifecycle", "")],
            headers: &[],
            body: b"",
            time: "2013-05-24T00:00:00Z".parse().unwrap(),
        };
        let signature = |request: &SignedRequest<'_>| {
            let head = String::from_utf8(request.bytes()).unwrap();
            let (_, rest) = head.split_once("Signature=").unwrap();
            rest.split("\r\n").next().unwrap().to_owned()
        };
        assert_eq!(
            signature(&request),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        let request = SignedRequest {
            query: &[("prefix", "J"), ("max-keys", "2")],
            ..request
        };
        assert_eq!(
            signature(&request),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
        let request = SignedRequest {
            path: "/test.txt",
            query: &[],
            headers: &[("range", "bytes=0-9")],
            ..request
        };
        assert_eq!(
            signature(&request),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encode_path("a b/ü~c.-_"), "a%20b/%C3%BC~c.-_");
        assert_eq!(encode("a/b=c&"), "a%2Fb%3Dc%26");
    }
}
