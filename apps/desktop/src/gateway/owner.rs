//! Whose a listening port is. On a machine with several users, another's gateway must not be told what is said here.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

/// State of a socket that listens, as the kernel writes it.
const LISTENING: &str = "0A";

/// The number of the user who listens on this port of loopback, if that is neither we nor root; root need not trick us.
pub(super) fn stranger(port: u16) -> Option<u32> {
    let us = fs::metadata("/proc/self").ok()?.uid();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().find_map(|table| listener(table, port)).filter(|user| *user != us && *user != 0)
}

/// The user of the socket that takes connections to loopback. The one of that very address comes before one of all addresses.
fn listener(table: &str, port: u16) -> Option<u32> {
    let loopback = format!("{:08X}", u32::from_le_bytes(Ipv4Addr::LOCALHOST.octets()));
    let mapped = format!("0000000000000000FFFF0000{loopback}");
    let rows = || {
        table.lines().skip(1).filter_map(|row| {
            let mut fields = row.split_whitespace().skip(1);
            let (address, state) = (fields.next()?.split_once(':')?, fields.nth(1)?);
            let user = fields.nth(3)?.parse::<u32>().ok()?;
            let ours = u16::from_str_radix(address.1, 16) == Ok(port) && state == LISTENING;
            ours.then_some((address.0, user))
        })
    };
    let exact = rows().find(|(address, _)| *address == loopback || *address == mapped);
    exact.or_else(|| rows().find(|(address, _)| address.bytes().all(|digit| digit == b'0'))).map(|(_, user)| user)
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
    fn whoever_takes_the_connection_is_found() {
        assert_eq!([8765, 8000, 22, 9].map(|port| listener(TABLE, port)), [Some(1001), Some(1003), None, None]);
    }

    #[test]
    fn we_are_no_strangers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(stranger(port), None);
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(super::listener(&table, port).is_some(), "the kernel's table is read as it is written");
    }
}
