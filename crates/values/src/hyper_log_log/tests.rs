//! HyperLogLogs beside those of Redis 7.0.15, and beside a table of registers.

use base::transaction::Kind;
use crc::{CRC_32_ISO_HDLC, Crc};

use super::*;
use crate::call::StoredBlock;
use crate::commands::hyper_log_logs::{merge, self_test};

/// Returns the HyperLogLog to which elements were added, so many at a time, with its estimate if it is asked for.
fn of(elements: impl Iterator<Item = String>, estimates: bool) -> Vec<u8> {
    let mut editor = HyperLogLogEditor::of(None);
    for element in elements {
        if editor.add(element.as_bytes()).expect("it is valid") {
            editor.invalidate();
        }
    }
    if estimates {
        let registers = editor.view().registers().expect("it is valid");
        editor.set_estimate(estimate(&registers));
    }
    editor.into_bytes()
}

fn checksum(bytes: &[u8]) -> u32 {
    Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(bytes)
}

fn stored(bytes: &[u8]) -> Option<StoredBlock<'_>> {
    let kind = Kind::String;
    Some(StoredBlock { kind, bytes })
}

#[test]
fn values_are_those_of_redis() {
    let elements = [
        "a",
        "b",
        "c",
        "",
        "a longer element of more than eight bytes",
    ];
    let few = of(elements.into_iter().map(str::to_owned), true);
    let expected = b"HYLL\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00W1\x84I\x0c\x84@\xb2\x80P\xb1\x84K\xfb\x80BZ";
    assert_eq!(few, expected);
    for (count, estimate, length, expected) in [
        (10, 10, 48, 0xf93a_673d),
        (100, 99, 285, 0x50aa_00e1),
        (500, 502, 1050, 0x142d_7dd8),
        (800, 802, 1571, 0x066f_e908),
        (900, 897, 1736, 0x359a_348b),
        (1000, 997, 1897, 0x0c2a_7f48),
        (3000, 3002, 12304, 0xc359_c1b2),
        (20_000, 19986, 12304, 0x3876_51d4),
    ] {
        let bytes = of((0..count).map(|number| format!("element:{number}")), true);
        let view = HyperLogLogView::new(&bytes).expect("it is one");
        assert_eq!(view.estimate(), Some(estimate));
        assert_eq!(
            (bytes.len(), checksum(&bytes)),
            (length, expected),
            "{count}"
        );
    }
}

#[test]
fn merged_values_are_those_of_redis() {
    let named = |name: &str| of((0..300).map(|number| format!("{name}{number}")), true);
    let (x, y) = (named("x"), named("y"));
    let bytes = merge(&[None, stored(&x), stored(&y)]).expect("they are valid");
    assert_eq!((bytes.len(), checksum(&bytes)), (1221, 0xf55a_31e0));
}

/// Random registers are raised, in an order that makes and breaks runs.
#[test]
fn registers_are_what_they_were_raised_to() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..20 {
        let mut model = Box::new([0; REGISTERS]);
        let mut editor = HyperLogLogEditor::of(None);
        let range = *random.choice(&[20, 300, REGISTERS]).expect("a range");
        let greatest = *random.choice(&[2, 32, 51]).expect("a value");
        for _ in 0..random.usize(1..3000) {
            let (register, value) = (random.usize(..range), random.u8(1..=greatest));
            let is_raised = model[register] < value;
            assert_eq!(editor.raise(register, value), Ok(is_raised));
            model[register] = model[register].max(value);
        }
        assert_eq!(editor.view().registers().as_ref(), Ok(&model));
        editor.become_dense().expect("it is valid");
        assert_eq!(editor.view().registers().as_ref(), Ok(&model));
    }
    assert_eq!(self_test(), Ok(()));
}

/// Changed bytes are refused, or are a HyperLogLog.
#[test]
fn damaged_values_are_refused() {
    let mut random = fastrand::Rng::with_seed(3);
    let whole = of((0..200).map(|number| number.to_string()), false);
    let mut corrupt = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(HEADER..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, random.u8(..)),
            }
            if bytes.len() == HEADER {
                break;
            }
        }
        let view = HyperLogLogView::new(&bytes).expect("its header is right");
        let merged = merge(&[stored(&bytes)]);
        let mut editor = HyperLogLogEditor::of(Some(view));
        let added = (0..50u8).try_for_each(|element| editor.add(&[element]).map(|_| ()));
        match view.registers() {
            Ok(_) => {
                assert!(merged.is_ok() && added.is_ok());
                assert!(editor.view().registers().is_ok());
            }
            Err(error) => {
                assert_eq!(merged, Err(error));
                corrupt += 1;
            }
        }
    }
    assert!(corrupt > 1000, "{corrupt}");
    for refused in [
        &b""[..],
        b"HYLL\x01",
        b"HYLLx\0\0\0\0\0\0\0\0\0\0\0",
        &whole[1..],
    ] {
        assert!(HyperLogLogView::new(refused).is_err());
    }
    let mut dense = whole.clone();
    dense[4] = DENSE;
    assert!(HyperLogLogView::new(&dense).is_err());
}
