//! Addresses of managers as sockets.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use adit_config::manager::ManagerAddress;
use adit_config::{Endpoint, Host};
use adit_sys::control::{ControlAddress, ControlSocket};

/// Takes the place of a manager.
pub(crate) fn bind(address: &ManagerAddress) -> io::Result<ControlSocket> {
    match address {
        ManagerAddress::Internet(endpoint) => ControlSocket::bind_internet(resolve(endpoint)?),
        ManagerAddress::Unix(path) => ControlSocket::bind_unix(path),
    }
}

/// Where a manager takes datagrams. A name is resolved here, once.
pub(crate) fn destination(address: &ManagerAddress) -> io::Result<ControlAddress> {
    match address {
        ManagerAddress::Internet(endpoint) => resolve(endpoint).map(ControlAddress::Internet),
        ManagerAddress::Unix(path) => ControlAddress::of_path(path),
    }
}

fn resolve(endpoint: &Endpoint) -> io::Result<SocketAddr> {
    match &endpoint.host {
        Host::Ip(ip) => Ok(SocketAddr::new(*ip, endpoint.port)),
        Host::Name(name) => (&**name, endpoint.port).to_socket_addrs()?.next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the name of the manager has no address")
        }),
    }
}
