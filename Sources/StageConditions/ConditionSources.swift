public import SystemPackage

/// Sources of conditions, and the debouncing of their changes.
public struct ConditionSources: Hashable, Sendable {
    /// D-Bus address of the message bus.
    ///
    /// Defaults to the standard address of the system bus. The caller sets it if it supports
    /// `DBUS_SYSTEM_BUS_ADDRESS`.
    public var busAddress = "unix:path=/run/dbus/system_bus_socket"
    /// Mount point of sysfs, which reports power supplies on machines without UPower.
    public var sysfs: FilePath = "/sys"
    /// Time for which an obstacle must be gone before its end takes effect.
    public var debounce = Duration.seconds(5)
    /// Minimum change of the battery's charge that is published, in percentage points.
    public var batteryStep = 2
    /// Maximum wait for the first readings in ``ConditionMonitor/settled()``.
    public var readingTimeout = Duration.seconds(2)
    /// Configured conditions, which override readings where they are known.
    public var overrides = Conditions.unknown

    /// Creates the standard sources.
    public init() {}
}
