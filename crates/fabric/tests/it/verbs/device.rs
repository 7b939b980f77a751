//! The choice of a device, and the errors if none can be chosen.

use fabric::verbs::{Device, NoDevice, VerbsOptions};
use kumiki_fabric as fabric;

use crate::verbs::net::{device, options};

#[test]
fn the_defaults_find_an_address_of_roce_v2() {
    let Some(device) = device(&VerbsOptions::default()) else {
        return;
    };
    let text = device.to_string();
    println!("{text}");
    assert!(text.starts_with("rxe0 port 1, MTU "), "{text}");
    assert!(text.ends_with("RoCE v2, GID 1 ::ffff:127.0.0.1"), "{text}");
}

#[test]
fn what_is_chosen_wrongly_is_named() {
    if device(&options()).is_none() {
        return;
    }
    type Change = fn(&mut VerbsOptions);
    let cases: [(Change, &str); 4] = [
        (|o| o.device = Some("mlx5_9".to_owned()), "mlx5_9, but rxe0"),
        (|o| o.port = Some(2), "no port 2"),
        (|o| o.gid_index = Some(200), "no GID 200"),
        (|o| o.depths.sends = 1 << 15, "choose smaller depths"),
    ];
    for (change, expected) in cases {
        let mut options = options();
        change(&mut options);
        let error = Device::open(&options).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn smaller_packets_can_be_chosen() {
    let mut options = options();
    options.mtu = Some(256);
    let Some(device) = device(&options) else {
        return;
    };
    assert!(device.to_string().contains("MTU 256,"), "{device}");
}

#[test]
fn a_machine_without_the_library_or_a_device_says_so() {
    let library = "libkumiki-none.so.1".to_owned();
    let options = VerbsOptions {
        library,
        ..options()
    };
    let error = Device::open(&options).expect_err("there is no such library");
    assert!(matches!(error, NoDevice::Library { .. }));
    assert!(error.to_string().contains("install"), "{error}");
}
