import StageSystem
import SystemPackage

/// The power supplies of the machine, as the kernel tells of them below `class/power_supply`
/// (Documentation/ABI/testing/sysfs-class-power).
struct PowerSupplies: Hashable {
    /// One supply.
    struct Supply: Hashable {
        /// `Mains`, `USB`, `Battery`, `UPS`, `Wireless`.
        var type: String
        /// Whether power comes in, of a supply that is no battery.
        var isOnline: Bool?
        /// `Charging`, `Discharging`, `Full`, `Not charging`, `Unknown`, of a battery.
        var status: String?
        /// From 0 to 100, of a battery.
        var capacity: Int?
        /// Whether it feeds a mouse or the like, and not the machine.
        var isForPeripheral = false

        fileprivate var isBattery: Bool { type == "Battery" || type == "UPS" }
    }

    /// The supplies.
    var supplies: [Supply]

    /// Creates the power supplies from what each one is.
    init(_ supplies: [Supply]) { self.supplies = supplies }

    /// Whether the machine runs on batteries, or `nil` if the supplies do not tell.
    ///
    /// As systemd does, power that comes in on any way counts as mains, whatever batteries do. A
    /// socket that nothing is plugged into tells something only of machines that have a battery.
    var isOnBattery: Bool? {
        let own = supplies.filter { !$0.isForPeripheral }
        let batteries = own.filter(\.isBattery)
        let sockets = own.filter { !$0.isBattery }
        if sockets.contains(where: { $0.isOnline == true }) { return false }
        if batteries.contains(where: { $0.status == "Discharging" }) { return true }
        if batteries.contains(where: { $0.status == "Charging" }) { return false }
        if batteries.isEmpty { return nil }
        if sockets.contains(where: { $0.isOnline == false }) { return true }
        let isFed = batteries.contains { $0.status == "Full" || $0.status == "Not charging" }
        return isFed ? false : nil
    }

    /// How much is left in the batteries, each counted alike, or `nil` if there are none.
    var batteryPercentage: Int? {
        let shares = supplies.filter { $0.isBattery && !$0.isForPeripheral }
            .compactMap(\.capacity).filter { (0...100).contains($0) }
        return shares.isEmpty ? nil : shares.reduce(0, +) / shares.count
    }
}

extension PowerSupplies {
    /// Reads the supplies; what cannot be read is not there.
    init(sysfs: FilePath) {
        let place = sysfs.appending("class/power_supply")
        // No such directory, or none that this process may see, is a machine that says nothing.
        let entries = (try? Directory.open(place).entries()) ?? []
        supplies = entries.sorted { $0.name.string < $1.name.string }
            .compactMap { Supply(place.appending($0.name)) }
    }
}

extension PowerSupplies.Supply {
    fileprivate init?(_ place: FilePath) {
        func read(_ name: String) -> String? {
            // A supply that went away meanwhile, or a driver that has no such attribute.
            guard let file = try? File.open(readingRegular: place.appending(name)),
                let bytes = try? file.readAll(limit: 4096)
            else { return nil }
            let text = String(decoding: bytes, as: UTF8.self)
            return text.split(whereSeparator: \.isNewline).first.map(String.init)
        }
        guard let type = read("type") else { return nil }
        self.type = type
        isOnline = read("online").flatMap { Int($0) }.map { $0 != 0 }
        status = read("status")
        capacity = read("capacity").flatMap { Int($0) }
        isForPeripheral = read("scope") == "Device"
    }
}
