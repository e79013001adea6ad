import Subprocess
import SystemPackage

/// The states of units of systemd, as `systemctl show` prints them.
struct UnitStates {
    /// The state of one unit.
    struct Unit: Equatable {
        /// Whether there is a file of it: `loaded`, `not-found`, `masked`.
        var load: String
        /// Whether it runs, or waits for its time or its clients.
        var isActive: Bool
        /// How it ended last; `success` or a reason.
        var result: String
    }

    private var units: [String: Unit] = [:]

    /// Reads blocks of properties with empty lines between them.
    init(_ text: String) {
        var properties: [String: String] = [:]
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) + [""[...]] {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { properties[String(parts[0])] = String(parts[1]) }
            guard line.isEmpty else { continue }
            if let name = properties["Id"], let load = properties["LoadState"] {
                units[name] = Unit(
                    load: load,
                    isActive: properties["ActiveState"] == "active",
                    result: properties["Result"] ?? "success"
                )
            }
            properties = [:]
        }
    }

    /// The unit of a name that has a file on this machine; `nil` for none.
    subscript(name: String) -> Unit? {
        units[name].flatMap { $0.load == "not-found" ? nil : $0 }
    }

    /// Asks systemd for the states of units; `nil` if it does not answer.
    ///
    /// - Parameters:
    ///   - names: The names of the units.
    ///   - manager: The options that name the manager: none for the system's, `--user` for this user's.
    /// - Returns: The states of those that systemd knows.
    static func ask(for names: [String], of manager: [String] = []) async -> UnitStates? {
        let properties = "--property=Id,LoadState,ActiveState,Result"
        let result = try? await run(
            .name("systemctl"),
            arguments: Arguments(manager + ["show", properties] + names),
            input: .none,
            output: .string(limit: 1 << 16),
            error: .discarded
        )
        // Without an answer there is nothing to tell of units.
        guard let result, case .exited(0) = result.terminationStatus else { return nil }
        return UnitStates(result.standardOutput)
    }
}
