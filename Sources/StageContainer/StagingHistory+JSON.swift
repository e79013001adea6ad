import FoundationEssentials
package import StageModel

extension StagingHistory: JSONReadable {
    /// Reads a history, without entries that contain a code unknown to this version or a number that is out of range.
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        registration = members.has(.registration) ? try members.string(.registration) : nil
        applicationVersion =
            members.has(.applicationVersion) ? try members.string(.applicationVersion) : nil
        if members.has(.pending) {
            let names = try members.node(.pending, expected: "an array")
            guard case .array(let elements) = names.value else {
                throw names.fault(ValueError(expected: "an array", found: names.value.noun))
            }
            pending = Set(elements.compactMap { $0.string.flatMap(ContentRequest.init(rawValue:)) })
        }
        firstLoadedAt =
            members.has(.firstLoadedAt)
            ? Int64(try members.number(.firstLoadedAt, in: RecordLimits.times)) : nil
        lastSuccessAt =
            members.has(.lastSuccessAt)
            ? Int64(try members.number(.lastSuccessAt, in: RecordLimits.times)) : nil
        spent = try members.value(Spending.self, for: .spent)
        if members.has(.lastRun) {
            lastRun = Run(try members.node(.lastRun, expected: "an object").value)
        }
        var codes = Codes()
        let entries = try members.node(.packs, expected: "an array")
        guard case .array(let elements) = entries.value else {
            throw entries.fault(ValueError(expected: "an array", found: entries.value.noun))
        }
        packs.reserveCapacity(elements.count)
        for element in elements {
            if let entry = PackEntry(element, codes: &codes) { packs.append(entry) }
        }
    }

    private enum Key: String, CodingKey {
        case registration, applicationVersion, pending, firstLoadedAt, spent, lastRun, packs
        case lastSuccessAt
    }

    /// Returns the history as JSON, with one line per pack.
    ///
    /// Takes some thousand instructions per pack, and more for each distinct reason, rule and problem.
    func json() -> [UInt8] {
        var header: [JSONTree.Member] = [.init("spent", spent.json)]
        if let registration { header.append(.init("registration", .string(registration))) }
        if let applicationVersion {
            header.append(.init("applicationVersion", .string(applicationVersion)))
        }
        if !pending.isEmpty {
            let names = pending.map(\.rawValue).sorted()
            header.append(.init("pending", .array(names.map(JSONTree.string))))
        }
        if let firstLoadedAt { header.append(.init("firstLoadedAt", .integer(firstLoadedAt))) }
        if let lastRun { header.append(.init("lastRun", lastRun.json)) }
        if let lastSuccessAt { header.append(.init("lastSuccessAt", .integer(lastSuccessAt))) }
        var json = Array("{\n".utf8)
        for member in header.sorted(by: { $0.name < $1.name }) {
            json += "\"\(member.name)\":\(member.value.text),\n".utf8
        }
        json += "\"packs\":[".utf8
        var codes = Codes()
        for (index, entry) in packs.enumerated() {
            json += (index == 0 ? "\n" : ",\n").utf8
            entry.json(&codes).write(to: &json)
        }
        json += (packs.isEmpty ? "]\n}\n" : "\n]\n}\n").utf8
        return json
    }
}

extension StagingHistory.Spending: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        essential = try members.byteCount(.essential, atMost: RecordLimits.spent)
        other = try members.byteCount(.other, atMost: RecordLimits.spent)
    }

    private enum Key: String, CodingKey { case essential, other }

    fileprivate var json: JSONTree {
        .object([
            .init("essential", .integer(essential.rawValue)),
            .init("other", .integer(other.rawValue)),
        ])
    }
}

extension StagingHistory.PackEntry {
    /// Reads an entry; returns `nil` if it contains a code unknown to this version, or a number that is out of range.
    fileprivate init?(_ json: JSONTree, codes: inout Codes) {
        guard let id = json["id"]?.string.flatMap({ try? PackID($0) }),
            let version = json["version"]?.integer,
            let decidedAt = json["decidedAt"]?.integer, RecordLimits.times.contains(decidedAt),
            let outcome = json["outcome"]?.string.flatMap(PackOutcome.init(rawValue:)),
            let rule = json["rule"].flatMap({ codes.rules.code(of: $0) }),
            let reason = json["reason"].flatMap({ codes.reasons.code(of: $0) }),
            let failures = json["failures"]?.integer, RecordLimits.failures.contains(failures)
        else { return nil }
        self.init(
            id: id,
            version: version,
            decidedAt: Int64(decidedAt),
            outcome: outcome,
            rule: rule,
            reason: reason
        )
        self.failures = failures
        source = json["source"]?.string
        guard let problem = json["problem"] else { return }
        guard let known = StagingHistory.Problem.decoded(from: problem) else { return nil }
        self.problem = known
    }

    fileprivate func json(_ codes: inout Codes) -> JSONTree {
        // In sorted order, so that sorting them is not necessary.
        var members: [JSONTree.Member] = [
            .init("decidedAt", .integer(decidedAt)),
            .init("failures", .integer(Int64(failures))),
            .init("id", .string(id.text)),
            .init("outcome", .string(outcome.rawValue)),
        ]
        members.reserveCapacity(9)
        if let problem { members.append(.init("problem", problem.json)) }
        members.append(.init("reason", codes.reasons.json(of: reason)))
        members.append(.init("rule", codes.rules.json(of: rule)))
        if let source { members.append(.init("source", .string(source))) }
        members.append(.init("version", .integer(Int64(version))))
        return .object(members)
    }
}

/// A cache of the codes in a history's entries and their JSON.
///
/// A history contains few distinct ones, so each is converted once: Foundation's coders take a hundred
/// thousand instructions.
private struct Codes {
    var rules = Conversions<StagingHistory.Rule>()
    var reasons = Conversions<StagingReason>()

    struct Conversions<Code: Codable & Hashable & UsualCode> {
        private var codes: [String: Code?] = [:]
        private var trees: [Code: JSONTree] = [:]

        /// Returns the code for JSON, or `nil` if this version does not know it.
        mutating func code(of json: JSONTree) -> Code? {
            let text = json.text
            if let known = codes[text] { return known }
            let code = Code(usual: json) ?? Code.decoded(from: json)
            codes[text] = .some(code)
            return code
        }

        mutating func json(of code: Code) -> JSONTree {
            if let known = trees[code] { return known }
            let tree = code.json
            trees[code] = tree
            return tree
        }
    }
}

/// A code that parses its most frequent JSON itself: the first use of Foundation's decoder takes ten million
/// instructions.
private protocol UsualCode {
    /// Parses the most frequent JSON; returns `nil` for any other.
    init?(usual json: JSONTree)
}

extension StagingReason: UsualCode {
    fileprivate init?(usual json: JSONTree) {
        guard json.members.count == 1, json["upToDate"] != nil else { return nil }
        self = .upToDate
    }
}

extension StagingHistory.Rule: UsualCode {
    fileprivate init?(usual json: JSONTree) {
        guard json.members.count == 1, let policy = json["policy"],
            let name = policy["name"]?.string,
            let event = policy["event"]?.string.flatMap(ContentRequest.init(rawValue:)),
            case .boolean(let isEssentialOnly)? = policy["isEssentialOnly"]
        else { return nil }
        self = .policy(name: name, event: event, isEssentialOnly: isEssentialOnly)
    }
}

extension StagingHistory.Run {
    /// Reads a run; returns `nil` if it contains a code unknown to this version, or a time that is out of range.
    fileprivate init?(_ json: JSONTree) {
        guard let endedAt = json["endedAt"]?.integer, RecordLimits.times.contains(endedAt),
            case .boolean(let isEssentialOnly)? = json["isEssentialOnly"],
            case .boolean(let hasFailed)? = json["hasFailed"]
        else { return nil }
        self.init(endedAt: Int64(endedAt), request: nil, isEssentialOnly: isEssentialOnly)
        if let name = json["request"]?.string {
            guard let request = ContentRequest(rawValue: name) else { return nil }
            self.request = request
        }
        self.hasFailed = hasFailed
        guard let json = json["problem"] else { return }
        guard let problem = StagingHistory.Problem.decoded(from: json) else { return nil }
        self.problem = problem
    }
}

extension Decodable {
    /// Decodes a value; returns `nil` if this version does not know it.
    fileprivate static func decoded(from json: JSONTree) -> Self? {
        // A later version of StagePack may have written it.
        try? JSONDecoder().decode(Self.self, from: Data(json.text.utf8))
    }
}

extension Encodable {
    /// The value as JSON.
    fileprivate var json: JSONTree {
        do {
            return try JSONNode(json: Array(JSONEncoder().encode(self))).value
        } catch {
            preconditionFailure("a record is always JSON: \(error)")
        }
    }
}
