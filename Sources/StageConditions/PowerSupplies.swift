import StageSystem
import SystemPackage

/// Power supplies of the machine, from sysfs directory `class/power_supply`
/// (Documentation/ABI/testing/sysfs-class-power).
struct PowerSupplies: Hashable {
    /// Power supply.
    struct Supply: Hashable {
        /// `Mains`, `USB`, `Battery`, `UPS` or `Wireless`.
        var type: String
        /// `true` if a supply other than a battery provides power.
        var isOnline: Bool?
        /// State of a battery: `Charging`, `Discharging`, `Full`, `Not charging` or `Unknown`.
        var status: String?
        /// `true` if the supply belongs to a peripheral such as a mouse.
        var isForPeripheral = false

        fileprivate var isBattery: Bool { type == "Battery" || type == "UPS" }
    }

    /// The supplies.
    var supplies: [Supply]

    /// Creates power supplies from their values.
    init(_ supplies: [Supply]) { self.supplies = supplies }

    /// `true` if the machine runs on batteries; `nil` if this is unknown.
    ///
    /// Follows systemd: any external power counts, regardless of batteries. An unplugged socket is significant only
    /// if the machine has a battery.
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
}

extension PowerSupplies {
    /// Reads the supplies, without those that cannot be read.
    init(sysfs: FilePath) {
        let folder = sysfs.appending("class/power_supply")
        // A missing or hidden directory means that the machine reports nothing.
        let entries = (try? Directory.open(folder).entries()) ?? []
        supplies = entries.sorted { $0.path.string < $1.path.string }
            .compactMap { Supply(folder.appending($0.name)) }
    }
}

extension PowerSupplies.Supply {
    fileprivate init?(_ folder: FilePath) {
        func read(_ name: String) -> String? {
            // The supply may have been removed, or its driver may lack this attribute.
            guard let file = try? File.open(readingRegular: folder.appending(name)),
                let bytes = try? file.readAll(limit: 4096)
            else { return nil }
            let text = String(decoding: bytes, as: UTF8.self)
            return text.split(whereSeparator: \.isNewline).first.map(String.init)
        }
        guard let type = read("type") else { return nil }
        self.type = type
        isOnline = read("online").flatMap { Int($0) }.map { $0 != 0 }
        status = read("status")
        isForPeripheral = read("scope") == "Device"
    }
}
