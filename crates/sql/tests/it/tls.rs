//! PostgreSQL's protocol over TLS: the certificates of both sides, and new ones while clients are connected.

use std::path::PathBuf;
use std::sync::Arc;

use kumiki_sql::serve::{Options, SqlServer};
use kumiki_sql::{Catalogue, Settings, Shared};
use reactor::tls::{CertificateFiles, ClientCertificates, ServerTls};
use testkit::tls::CertificateAuthority;
use testkit::tls::rcgen::date_time_ymd;

use crate::serve::{NATIONS, Served, options, psql_by, text};
use crate::support::wire::Client;

/// Returns the server's certificate, which the authority signs.
fn certificate(authority: &CertificateAuthority, clients: ClientCertificates) -> Arc<ServerTls> {
    let (cert, key) = authority.sign("server", |_| {});
    let files = CertificateFiles { cert, key, clients };
    Arc::new(ServerTls::load(files).unwrap())
}

fn served(certificate: &Arc<ServerTls>) -> Served {
    Served::start(|options| options.certificate = Some(Arc::clone(certificate)))
}

/// Returns a client that knows the authority and shows the certificate `own`; `None` if one side refuses the
/// other.
fn client(
    served: &Served,
    authority: &CertificateAuthority,
    own: Option<&(PathBuf, PathBuf)>,
) -> Option<Client> {
    let mut client = Client::greet_by(served.address, authority.session(own)).ok()?;
    let answer = client.until_ready().0;
    let is_ready = answer.last().is_some_and(|message| message.0 == b'Z');
    is_ready.then_some(client)
}

/// Returns `true` if such a client is served.
fn is_served(
    served: &Served,
    authority: &CertificateAuthority,
    own: Option<&(PathBuf, PathBuf)>,
) -> bool {
    let Some(mut client) = client(served, authority, own) else {
        return false;
    };
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
    true
}

/// Asserts that a client without TLS is refused, with what to do.
fn refuses_plain_clients(served: &Served) {
    let (state, what) = Client::greet(served.address).until_ready().error();
    assert!(
        state == "28000" && what.contains("sslmode=require"),
        "{what}"
    );
}

#[test]
fn with_a_certificate_clients_speak_tls_and_nothing_else() {
    let authority = CertificateAuthority::new("one");
    let certificate = certificate(&authority, ClientCertificates::None);
    let served = Served::start(|options| {
        options.password = Some("secret".to_owned());
        options.certificate = Some(certificate);
    });
    refuses_plain_clients(&served);
    let verified = format!(
        "sslmode=verify-full sslrootcert={}",
        authority.ca().display()
    );
    for mode in ["sslmode=require", &verified] {
        let Some(given) = psql_by(&served, mode, "secret", &[NATIONS]) else {
            break;
        };
        assert!(given.status.success(), "{mode}: {}", text(&given.stderr));
        assert_eq!(text(&given.stdout), "0|ALGERIA\n1|ARGENTINA\n");
    }
}

#[test]
fn clients_may_begin_with_tls_at_once() {
    let authority = CertificateAuthority::new("one");
    let served = served(&certificate(&authority, ClientCertificates::None));
    let mut config = authority.client_config(None);
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    let client = Client::open(served.address);
    let mut client = client.encrypt(testkit::tls::session(config)).unwrap();
    assert!(client.until_ready().0.iter().any(|it| it.0 == b'Z'));
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

#[test]
fn certificates_of_clients_are_judged() {
    let (authority, foreign) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("another"),
    );
    let own = authority.sign("client", |_| {});
    let stranger = foreign.sign("client", |_| {});
    let expired = authority.sign("expired", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let ca = authority.ca();
    for (clients, without) in [
        (ClientCertificates::Required(ca.clone()), false),
        (ClientCertificates::Optional(ca), true),
    ] {
        let served = served(&certificate(&authority, clients));
        refuses_plain_clients(&served);
        assert!(is_served(&served, &authority, Some(&own)));
        assert_eq!(is_served(&served, &authority, None), without);
        assert!(!is_served(&served, &authority, Some(&stranger)));
        assert!(!is_served(&served, &authority, Some(&expired)));
        // The client judges the server's, too.
        assert!(!is_served(&served, &foreign, Some(&own)));
    }
}

#[test]
fn a_new_certificate_is_for_new_clients() {
    let (authority, next) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("next"),
    );
    let certificate = certificate(&authority, ClientCertificates::None);
    let served = served(&certificate);
    let mut before = client(&served, &authority, None).expect("it is served");
    let (cert, key) = next.sign("renewed", |_| {});
    std::fs::copy(cert, authority.path("server.pem")).unwrap();
    // The old key is not that of the new certificate.
    let error = certificate.reload().unwrap_err().to_string();
    assert!(error.contains("correct --tls-key or --tls-cert"), "{error}");
    assert!(is_served(&served, &authority, None));
    std::fs::copy(key, authority.path("server.key")).unwrap();
    certificate.reload().unwrap();
    assert!(is_served(&served, &next, None));
    assert!(!is_served(&served, &authority, None));
    assert_eq!(before.ask("select 1").rows(), [["1"]]);
}

/// Returns the reason why a server with these options does not start.
fn refusal(change: impl FnOnce(&mut Options)) -> Option<String> {
    let mut options = options();
    options.listen = "0.0.0.0:0".parse().unwrap();
    change(&mut options);
    let runtime = kumiki_sql::session::runtime(None).unwrap();
    let shared = Shared::new(Catalogue::new(Vec::new()), Settings::default()).unwrap();
    let bound = runtime
        .block_on(SqlServer::bind(&options, shared))
        .map(drop);
    bound.err().map(|error| error.to_string())
}

#[test]
fn a_public_address_needs_certificates_of_clients_or_a_password() {
    let authority = CertificateAuthority::new("one");
    let ca = authority.ca();
    for (clients, is_enough) in [
        (ClientCertificates::None, false),
        (ClientCertificates::Optional(ca.clone()), false),
        (ClientCertificates::Required(ca), true),
    ] {
        let certificate = certificate(&authority, clients);
        let refused = refusal(|options| options.certificate = Some(certificate));
        assert_eq!(refused.is_none(), is_enough, "{refused:?}");
        if let Some(refused) = refused {
            assert!(refused.contains("--tls-ca"), "{refused}");
        }
    }
    let with_password = refusal(|options| options.password = Some("secret".to_owned()));
    assert_eq!(with_password, None);
}
