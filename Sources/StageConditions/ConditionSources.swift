package import SystemPackage

/// Sources of conditions, and the debouncing of their changes.
package struct ConditionSources: Hashable, Sendable {
    /// D-Bus address of the message bus.
    ///
    /// Defaults to the standard address of the system bus. The caller sets it if it supports
    /// `DBUS_SYSTEM_BUS_ADDRESS`.
    package var busAddress = "unix:path=/run/dbus/system_bus_socket"
    /// Mount point of sysfs, which reports power supplies on machines without UPower.
    package var sysfs: FilePath = "/sys"
    /// Pass `true` to read the kernel's messages about links, addresses and routes for
    /// ``ConditionMonitor/networkChanges``.
    package var watchesNetwork = false
    /// Time for which an obstacle must be gone before its end takes effect, and for which the network must be stable
    /// before a change of it is reported.
    package var debounce = Duration.seconds(5)
    /// Maximum wait for the first readings in ``ConditionMonitor/settled()``.
    package var readingTimeout = Duration.seconds(2)

    /// Creates the standard sources.
    package init() {}
}
