import StageSystem
import SystemPackage

/// Identifier of one boot of the kernel: data written without a sync survives until that boot ends.
public struct BootID: Hashable, Sendable {
    let text: String

    /// Creates the identifier of another boot from its text.
    public init(_ text: String) { self.text = text }

    /// The identifier of the boot that this process runs in (random(4), `boot_id`).
    public static let current = BootID(read() ?? "")

    private static func read() -> String? {
        // Without an identifier only synced bytes count.
        let file = try? File.open(reading: "/proc/sys/kernel/random/boot_id")
        // A file in procfs reports no size: one read returns all of it.
        var buffer = [UInt8](repeating: 0, count: 64)
        guard let file, let count = try? file.read(into: &buffer, at: 0) else { return nil }
        return String(String(decoding: buffer[..<count], as: UTF8.self).trimmingBlanks)
    }

    /// Returns whether both identifiers are known and equal.
    func isSame(as other: BootID) -> Bool { !text.isEmpty && text == other.text }
}

extension BootID: CustomStringConvertible {
    /// The identifier as the kernel prints it; empty if the kernel provides none.
    public var description: String { text }
}
