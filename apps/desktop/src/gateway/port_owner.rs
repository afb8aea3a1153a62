//! Finds the user who owns a listening port.
//!
//! On a machine with several users, prompts must not be sent to a gateway of another user.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

/// Socket state `TCP_LISTEN` in `/proc/net/tcp`.
const LISTEN_STATE: &str = "0A";

/// Returns the uid of the user who listens on this port of loopback, if it is neither ours nor root. Root is trusted:
/// it can read everything of ours anyway.
pub(super) fn foreign_uid(port: u16) -> Option<u32> {
    let own_uid = fs::metadata("/proc/self").ok()?.uid();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().find_map(|table| listener_uid(table, port)).filter(|uid| *uid != own_uid && *uid != 0)
}

/// Returns the uid of the socket that accepts connections to loopback. A socket bound to that address takes precedence
/// over one bound to all addresses, as it does in the kernel.
fn listener_uid(table: &str, port: u16) -> Option<u32> {
    let loopback = format!("{:08X}", u32::from_le_bytes(Ipv4Addr::LOCALHOST.octets()));
    let mapped = format!("0000000000000000FFFF0000{loopback}");
    let rows = || {
        table.lines().skip(1).filter_map(|row| {
            let mut fields = row.split_whitespace().skip(1);
            let (address, state) = (fields.next()?.split_once(':')?, fields.nth(1)?);
            let uid = fields.nth(3)?.parse::<u32>().ok()?;
            let matches = u16::from_str_radix(address.1, 16) == Ok(port) && state == LISTEN_STATE;
            matches.then_some((address.0, uid))
        })
    };
    let exact = rows().find(|(address, _)| *address == loopback || *address == mapped);
    exact.or_else(|| rows().find(|(address, _)| address.bytes().all(|digit| digit == b'0'))).map(|(_, uid)| uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000   1000        0 2 1 0 100 0 0 10 0
   1: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000   1001        0 3 1 0 100 0 0 10 0
   2: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000   1002        0 4 1 0 100 0 0 10 0
   3: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000   1003        0 5 1 0 100 0 0 10 0
   4: 0200007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000      0        0 6 1 0 100 0 0 10 0
";

    #[test]
    fn finds_the_socket_that_accepts_loopback_connections() {
        assert_eq!([8765, 8000, 22, 9].map(|port| listener_uid(TABLE, port)), [Some(1001), Some(1003), None, None]);
    }

    #[test]
    fn own_listener_is_not_foreign() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(foreign_uid(port), None);
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(listener_uid(&table, port).is_some(), "the real table of the kernel is parsed");
    }
}
