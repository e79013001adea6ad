import Subprocess
import SystemPackage

/// The states of systemd units, as `systemctl show` prints them.
struct UnitStates {
    /// The state of one unit.
    struct Unit: Equatable {
        /// The load state: `loaded`, `not-found`, `masked`.
        var load: String
        /// Set if the unit runs, or waits for its time or its clients.
        var isActive: Bool
        /// The result of the last execution: `success` or a reason.
        var result: String
    }

    private var units: [String: Unit] = [:]

    /// Parses blocks of properties, separated by empty lines.
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

    /// The unit with this name; `nil` if it has no file on this machine.
    subscript(name: String) -> Unit? {
        units[name].flatMap { $0.load == "not-found" ? nil : $0 }
    }

    /// Asks systemd for the states of units; returns `nil` if it does not answer.
    ///
    /// - Parameters:
    ///   - names: The names of the units.
    ///   - manager: The options that select the manager: none for the system's, `--user` for this user's.
    /// - Returns: The states of the units that systemd knows.
    static func ask(for names: [String], of manager: [String] = []) async -> UnitStates? {
        let properties = "--property=Id,LoadState,ActiveState,Result"
        let result = try? await run(
            .name("systemctl"),
            arguments: Arguments(manager + ["show", properties] + names),
            input: .none,
            output: .string(limit: 1 << 16),
            error: .discarded
        )
        // Without an answer, the states are not known.
        guard let result, case .exited(0) = result.terminationStatus else { return nil }
        return UnitStates(result.standardOutput)
    }
}
