import CLinux

/// Routes of this machine to other networks.
package enum NetworkRoute {
    /// `true` if there is a default route, of IPv4 or IPv6, or if the system does not tell; costs few system calls, and
    /// sends nothing.
    ///
    /// Without one, names are not resolved, and no server of another network is reached.
    package static var hasDefault: Bool { stage_has_default_route() }
}
