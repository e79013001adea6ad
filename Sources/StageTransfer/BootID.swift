import StageSystem
import SystemPackage

/// Names one run of the kernel: what was written without waiting for the disk is still there as long
/// as it lasts.
public struct BootID: Hashable, Sendable {
    let text: String

    /// Creates the name of some other run.
    public init(_ text: String) { self.text = text }

    /// The run that this process belongs to (random(4), `boot_id`).
    public static let current = BootID(read() ?? "")

    private static func read() -> String? {
        // Where the kernel does not tell, nothing counts that is not on disk.
        let file = try? File.open(reading: "/proc/sys/kernel/random/boot_id")
        // A file of procfs has no size: one read brings all of it.
        var buffer = [UInt8](repeating: 0, count: 64)
        guard let file, let count = try? file.read(into: &buffer, at: 0) else { return nil }
        return String(String(decoding: buffer[..<count], as: UTF8.self).trimmingBlanks)
    }

    /// Whether what the two name is known to be the same run.
    func isSame(as other: BootID) -> Bool { !text.isEmpty && text == other.text }
}

extension BootID: CustomStringConvertible {
    /// The name as the kernel gives it; empty where it gives none.
    public var description: String { text }
}
