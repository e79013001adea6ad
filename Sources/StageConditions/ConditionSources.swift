public import SystemPackage

/// Where conditions are read, and how quickly a change of them counts.
public struct ConditionSources: Hashable, Sendable {
    /// The address of the message bus, as D-Bus writes it.
    ///
    /// The default is the system bus where its specification has it; whoever reads
    /// `DBUS_SYSTEM_BUS_ADDRESS` sets this.
    public var busAddress = "unix:path=/run/dbus/system_bus_socket"
    /// Where the kernel tells of power supplies, for machines without UPower.
    public var sysfs: FilePath = "/sys"
    /// How long an obstacle has to be gone before it counts as gone.
    public var debounce = Duration.seconds(5)
    /// By how many points the battery has to change before that is told.
    public var batteryStep = 2
    /// How long the first readings may take before ``ConditionMonitor/settled()`` returns anyway.
    public var patience = Duration.seconds(2)
    /// What configuration says: what is known here stands above what is read.
    public var overrides = Conditions.unknown

    /// Creates the sources of a machine as it comes.
    public init() {}
}
