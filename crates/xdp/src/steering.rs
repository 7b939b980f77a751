//! The XDP program that chooses the packets of the process.
//!
//! A packet goes to the AF_XDP socket of the receive queue on which it came if all of this holds:
//!
//! | bytes | content |
//! |---|---|
//! | 12..14 | the type IPv4 (`0800`) |
//! | 14 | version 4, a header of 20 bytes (`45`) |
//! | 20..22 | not a fragment: neither the flag "more" nor an offset |
//! | 23 | the protocol TCP (6) |
//! | 30..34 | the destination is the interface's address |
//! | 36..38 | the destination port is marked in the map of ports |
//!
//! Everything else goes on to the kernel (`XDP_PASS`), and so does a packet whose queue has no socket.
//!
//! The program is a few instructions, written here in their binary form (kernel documentation, "BPF Instruction Set
//! Architecture"): no compiler and no library is needed at run time or at build time.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// One instruction: operation, registers (destination in the low half), offset, immediate value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Entries of the map of ports.
pub(crate) const PORTS: u32 = 65_536;

const PASS: i32 = 2;
const LOOK_UP_ELEMENT: i32 = 1;
const REDIRECT_MAP: i32 = 51;

const LOAD_U8: u8 = 0x71;
const LOAD_U16: u8 = 0x69;
const LOAD_U32: u8 = 0x61;
const STORE_U32: u8 = 0x63;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD_VALUE: u8 = 0x07;
const AND_VALUE: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP_GREATER: u8 = 0x2d;
const JUMP_EQUAL_VALUE: u8 = 0x15;
const JUMP_UNEQUAL_VALUE: u8 = 0x55;
/// Compares the low 32 bits.
const JUMP_UNEQUAL_VALUE_32: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source register of [`LOAD_MAP`] for a descriptor.
const MAP_DESCRIPTOR: u8 = 1;
/// The offset of jumps to the end, before it is known.
const TO_PASS: i16 = i16::MAX;

const fn instruction(
    operation: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction {
        operation,
        registers: destination | source << 4,
        offset,
        immediate,
    }
}

/// Returns the program for an interface with this address. `ports` is an array of [`PORTS`] numbers of 32 bits, of
/// which those of steered ports are not zero; `sockets` is a map from queues to AF_XDP sockets.
pub(crate) fn program(address: Ipv4Addr, ports: RawFd, sockets: RawFd) -> Vec<Instruction> {
    let network_order = |value: u16| i32::from(u16::from_ne_bytes(value.to_be_bytes()));
    let map = |register, map| {
        [
            instruction(LOAD_MAP, register, MAP_DESCRIPTOR, 0, map),
            instruction(0, 0, 0, 0, 0),
        ]
    };
    let mut program = vec![
        instruction(MOVE, 6, 1, 0, 0),
        // The packet's begin and end.
        instruction(LOAD_U32, 2, 1, 0, 0),
        instruction(LOAD_U32, 3, 1, 4, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD_VALUE, 4, 0, 0, 38),
        instruction(JUMP_GREATER, 4, 3, TO_PASS, 0),
        instruction(LOAD_U16, 4, 2, 12, 0),
        instruction(JUMP_UNEQUAL_VALUE, 4, 0, TO_PASS, network_order(0x0800)),
        instruction(LOAD_U8, 4, 2, 14, 0),
        instruction(JUMP_UNEQUAL_VALUE, 4, 0, TO_PASS, 0x45),
        instruction(LOAD_U8, 4, 2, 23, 0),
        instruction(JUMP_UNEQUAL_VALUE, 4, 0, TO_PASS, 6),
        instruction(LOAD_U16, 4, 2, 20, 0),
        instruction(AND_VALUE, 4, 0, 0, network_order(0x3fff)),
        instruction(JUMP_UNEQUAL_VALUE, 4, 0, TO_PASS, 0),
        instruction(LOAD_U32, 4, 2, 30, 0),
        instruction(
            JUMP_UNEQUAL_VALUE_32,
            4,
            0,
            TO_PASS,
            i32::from_ne_bytes(address.octets()),
        ),
        // The key of the port: a number of 32 bits on the stack.
        instruction(LOAD_U16, 4, 2, 36, 0),
        instruction(TO_BIG_ENDIAN, 4, 0, 0, 16),
        instruction(STORE_U32, 10, 4, -4, 0),
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_VALUE, 2, 0, 0, -4),
    ];
    program.extend(map(1, ports));
    program.extend([
        instruction(CALL, 0, 0, 0, LOOK_UP_ELEMENT),
        instruction(JUMP_EQUAL_VALUE, 0, 0, TO_PASS, 0),
        instruction(LOAD_U32, 0, 0, 0, 0),
        instruction(JUMP_EQUAL_VALUE, 0, 0, TO_PASS, 0),
        // The receive queue.
        instruction(LOAD_U32, 2, 6, 16, 0),
    ]);
    program.extend(map(1, sockets));
    program.extend([
        instruction(MOVE_VALUE, 3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
    let end = program.len() as i16;
    for (at, jump) in program.iter_mut().enumerate() {
        if jump.offset == TO_PASS {
            jump.offset = end - at as i16 - 1;
        }
    }
    program.push(instruction(MOVE_VALUE, 0, 0, 0, PASS));
    program.push(instruction(EXIT, 0, 0, 0, 0));
    program
}

/// Returns the instructions as the kernel takes them, 8 bytes each.
pub(crate) fn encode(program: &[Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for one in program {
        bytes.extend([one.operation, one.registers]);
        bytes.extend(one.offset.to_ne_bytes());
        bytes.extend(one.immediate.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
    const PORTS_MAP: i32 = 70;
    const SOCKETS_MAP: i32 = 71;
    const QUEUE: u64 = 5;

    /// Executes the program on a packet. Returns the queue whose socket gets it, or `None` if the kernel does.
    fn run(packet: &[u8], is_marked: impl Fn(u16) -> bool) -> Option<u64> {
        // Addresses as the program sees them: the packet begins here, and the stack ends there.
        const PACKET: u64 = 1 << 20;
        const STACK: u64 = 1 << 21;
        const VALUE: u64 = 1 << 22;
        const CONTEXT: u64 = 1 << 23;
        let program = program(ADDRESS, PORTS_MAP, SOCKETS_MAP);
        let mut registers = [0_u64; 11];
        (registers[1], registers[10]) = (CONTEXT, STACK);
        let (mut stack, mut redirected, mut marked) = ([0_u8; 4], None, 0_u32);
        let mut at = 0;
        for _ in 0..program.len() + 1 {
            let one = program[at];
            let (to, from) = (
                usize::from(one.registers & 15),
                usize::from(one.registers >> 4),
            );
            at += 1;
            let value = i64::from(one.immediate) as u64;
            let address = registers[from].wrapping_add_signed(i64::from(one.offset));
            let load = |len: usize| {
                let mut bytes = [0_u8; 8];
                let wide = match address {
                    CONTEXT => (PACKET as u32).to_ne_bytes(),
                    a if a == CONTEXT + 4 => (PACKET as u32 + packet.len() as u32).to_ne_bytes(),
                    a if a == CONTEXT + 16 => (QUEUE as u32).to_ne_bytes(),
                    VALUE => marked.to_ne_bytes(),
                    a => {
                        let begin = (a - PACKET) as usize;
                        bytes[..len].copy_from_slice(&packet[begin..begin + len]);
                        return u64::from_le_bytes(bytes);
                    }
                };
                u64::from(u32::from_ne_bytes(wide))
            };
            match one.operation {
                MOVE => registers[to] = registers[from],
                MOVE_VALUE => registers[to] = value,
                ADD_VALUE => registers[to] = registers[to].wrapping_add(value),
                AND_VALUE => registers[to] &= value,
                TO_BIG_ENDIAN => registers[to] = u64::from((registers[to] as u16).to_be()),
                LOAD_U8 => registers[to] = load(1),
                LOAD_U16 => registers[to] = load(2),
                LOAD_U32 => registers[to] = load(4),
                STORE_U32 => stack = (registers[from] as u32).to_ne_bytes(),
                JUMP_GREATER if registers[to] > registers[from] => at += one.offset as usize,
                JUMP_EQUAL_VALUE if registers[to] == value => at += one.offset as usize,
                JUMP_UNEQUAL_VALUE if registers[to] != value => at += one.offset as usize,
                JUMP_UNEQUAL_VALUE_32 if registers[to] as u32 != value as u32 => {
                    at += one.offset as usize;
                }
                JUMP_GREATER | JUMP_EQUAL_VALUE | JUMP_UNEQUAL_VALUE | JUMP_UNEQUAL_VALUE_32 => {}
                LOAD_MAP => {
                    registers[to] = value;
                    at += 1;
                }
                CALL if one.immediate == LOOK_UP_ELEMENT => {
                    assert_eq!(registers[1], PORTS_MAP as u64);
                    assert_eq!(registers[2], STACK - 4);
                    let port = u32::from_ne_bytes(stack);
                    marked = u32::from(is_marked(u16::try_from(port).expect("a port")));
                    registers[0] = VALUE;
                }
                CALL => {
                    assert_eq!(
                        (one.immediate, registers[1]),
                        (REDIRECT_MAP, SOCKETS_MAP as u64)
                    );
                    redirected = Some(registers[2]);
                    registers[0] = 4;
                }
                EXIT => {
                    let result = registers[0];
                    assert!(result == 4 || (result == 2 && redirected.is_none()));
                    return redirected;
                }
                other => panic!("{other:#x}"),
            }
        }
        panic!("the program does not end");
    }

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[12..14].copy_from_slice(&[0x08, 0x00]);
        packet[14] = 0x45;
        packet[20] = 0x40;
        packet[23] = 6;
        packet[30..34].copy_from_slice(&ADDRESS.octets());
        packet[36..38].copy_from_slice(&6390_u16.to_be_bytes());
        packet
    }

    #[test]
    fn packets_of_marked_ports_alone_go_to_the_process() {
        let is_marked = |port| port == 6390;
        assert_eq!(run(&packet(), is_marked), Some(QUEUE));
        assert_eq!(run(&packet(), |_| false), None, "a port of the kernel");
        // A change of any of these bytes leaves the packet to the kernel.
        let changes = [
            (12, 0x86, "IPv6"),
            (14, 0x46, "options"),
            (20, 0x20, "the first fragment"),
            (21, 0x01, "a later fragment"),
            (23, 17, "UDP"),
            (30, 11, "another host"),
            (33, 4, "another host"),
            (37, 0, "another port"),
        ];
        for (at, byte, what) in changes {
            let mut changed = packet();
            changed[at] = byte;
            assert_eq!(run(&changed, is_marked), None, "{what}");
        }
        for len in [0, 1, 14, 34, 37] {
            assert_eq!(run(&packet()[..len], is_marked), None, "{len} bytes");
        }
        assert_eq!(run(&packet()[..38], is_marked), Some(QUEUE));
    }

    #[test]
    fn the_program_has_these_bytes() {
        let bytes = encode(&program(ADDRESS, 7, 8));
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(&bytes[..8], [0xbf, 0x16, 0, 0, 0, 0, 0, 0], "r6 = r1");
        let expected = [0x56, 0x04, 0x11, 0x00, 10, 1, 2, 3];
        assert_eq!(
            &bytes[16 * 8..17 * 8],
            expected,
            "if w4 != 10.1.2.3 goto pass"
        );
        let maps: Vec<&[u8]> = bytes.chunks(8).filter(|one| one[0] == LOAD_MAP).collect();
        assert_eq!(
            maps,
            [
                &[0x18, 0x11, 0, 0, 7, 0, 0, 0],
                &[0x18, 0x11, 0, 0, 8, 0, 0, 0]
            ]
        );
        let end = [0xb7, 0, 0, 0, 2, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
        assert!(bytes.ends_with(&end), "return XDP_PASS");
    }
}
