import StageModel
import StageTesting
import StageTrust
import Testing

/// Holders of keys who sign arbitrary data: signed metadata may still be hostile.
@Suite struct SignedNonsenseTests {
    @Test(arguments: ["root", "timestamp", "snapshot", "targets", "a"], 0..<4)
    func signedNonsenseIsRefusedOrUnderstood(role: String, seed: Int) throws {
        var random = SeededGenerator(state: UInt64(seed))
        var repository = try TestRepository()
        repository.listsDigests = true
        repository.contents["a"] = ["x": [1]]
        repository.targets["a"] = .init(keys: [try SigningKey()])
        repository.delegations["targets"] = [.init(role: "a")]
        try repository.publish()
        var client = TestClient(root: repository.firstRoot)
        try client.refresh(from: repository)
        for _ in 0..<60 {
            var attacked = repository
            let state = random.next()
            let edit: (inout JSONTree) -> Void = { tree in
                var random = SeededGenerator(state: state)
                for _ in 0...random.next() % 3 { tree.damage(using: &random) }
            }
            switch role {
            case "root": attacked.root.edit = edit
            case "timestamp": attacked.timestamp.edit = edit
            case "snapshot": attacked.snapshot.edit = edit
            default: attacked.targets[role]?.edit = edit
            }
            // Numbers that are not integers cannot be signed.
            guard (try? attacked.publish()) != nil else { continue }
            var victim = client
            if let target = try? victim.target("x", in: attacked) {
                #expect(target.path == TargetPath("x"))
            }
            for (name, version) in try client.versions {
                #expect(try victim.versions[name] ?? version >= version)
            }
        }
    }
}

extension JSONTree {
    /// Replaces, repeats or removes a value at a random position of the tree.
    mutating func damage(using random: inout SeededGenerator) {
        let isDeeper = random.next() % 4 > 0
        switch self {
        case .object(var members) where isDeeper && !members.isEmpty:
            let index = Int(random.next() % UInt64(members.count))
            if random.next() % 8 == 0 {
                members.remove(at: index)
            } else {
                var value = members[index].value
                value.damage(using: &random)
                members[index] = Member(members[index].name, value)
            }
            self = .object(members)
        case .array(var values) where isDeeper && !values.isEmpty:
            let index = Int(random.next() % UInt64(values.count))
            if random.next() % 4 == 0 {
                values.append(values[index])
            } else {
                values[index].damage(using: &random)
            }
            self = .array(values)
        default:
            let values: [JSONTree] = [
                .null, .boolean(true), .integer(0), .integer(-1), .integer(.max), .integer(.min),
                .integer(1 << 53), .string(""), .string("root"), .string("../x"), .string("*"),
                .string("9999-12-31T23:59:59Z"), .string("1.0.34"), .string("2.0"),
                .string("9999999999999999999.0"), .string("."),
                .string(String(repeating: "[", count: 300)),
                .array([]), .object([]), .object([.init("root.json", .object([]))]),
            ]
            self = values[Int(random.next() % UInt64(values.count))]
        }
    }
}
