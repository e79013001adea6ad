import StageDigest
import StageModel

/// The delegations of a targets role, in order of priority.
struct Delegations: Hashable, Sendable {
    let list: [Delegation]

    /// No delegations.
    init() { list = [] }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        let keys = try ListedKey.keys(members.node(.keys, expected: "an object"))
        let roles = try members.node(.roles, expected: "an array of roles")
        guard let nodes = roles.elements else {
            throw roles.fault(ValueError(expected: "an array of roles", found: roles.value.noun))
        }
        var list: [Delegation] = []
        var first: [RoleName: Int] = [:]
        for (index, node) in nodes.enumerated() {
            let delegation = try Delegation(reading: node, keys: keys)
            if let earlier = first.updateValue(index, forKey: delegation.role) {
                let path = ManifestError.path(roles.path)
                throw .duplicate(
                    member: "\(path)[\(index)].name",
                    first: "\(path)[\(earlier)].name",
                    value: delegation.role.text
                )
            }
            list.append(delegation)
        }
        self.list = list
    }

    private enum Member: String, CodingKey { case keys, roles }
}

/// A role that another one trusts for some target paths.
struct Delegation: Hashable, Sendable {
    let role: RoleName
    let keys: RoleKeys
    let isTerminating: Bool
    private let paths: Paths

    private enum Paths: Hashable {
        case patterns([PathPattern])
        case digestPrefixes([String])
    }

    init(reading node: JSONNode, keys: [String: ListedKey]) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        role = try members.text(.name) { text throws(ValueError) in
            try RoleName(delegated: text)
        }
        self.keys = try RoleKeys(reading: node, from: keys)
        if members.has(.terminating) {
            let node = try members.node(.terminating, expected: "a boolean")
            guard case .boolean(let value) = node.value else {
                throw node.fault(ValueError(expected: "a boolean", found: node.value.noun))
            }
            isTerminating = value
        } else {
            isTerminating = false
        }
        guard !members.has(.paths) || !members.has(.digestPrefixes) else {
            throw members.fault(
                for: .paths,
                ValueError(
                    expected: "either 'paths' or 'path_hash_prefixes'",
                    found: "both"
                )
            )
        }
        if members.has(.digestPrefixes) {
            let prefixes = try members.strings(.digestPrefixes, atMost: .max)
            paths = .digestPrefixes(prefixes.map { $0.lowercased() })
        } else {
            paths = .patterns(try members.strings(.paths, atMost: .max).map(PathPattern.init))
        }
    }

    private enum Member: String, CodingKey {
        case name, terminating, paths
        case digestPrefixes = "path_hash_prefixes"
    }

    /// Returns whether the role is trusted for a target.
    func covers(_ path: String) -> Bool {
        switch paths {
        case .patterns(let patterns):
            return patterns.contains { $0.matches(path) }
        case .digestPrefixes(let prefixes):
            let digest = Digest(of: Array(path.utf8)).description
            return prefixes.contains { digest.hasPrefix($0) }
        }
    }
}
