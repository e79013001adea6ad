import CLinux

/// Routes of this machine to other networks.
package enum NetworkRoute {
    /// `true` if there is a default route, of IPv4 or IPv6, or if the system does not tell; costs few system calls, and
    /// sends nothing.
    ///
    /// Without a default route, no name is resolved, and only servers of the local networks are reached.
    package static var hasDefault: Bool { stage_has_default_route() }
}
