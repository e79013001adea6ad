import StageModel
import SystemPackage

/// JSON form of the members common to all messages, and of the packs.
struct RequestDocument {
    var request: ExtensionRequest

    private enum Key: String, CodingKey {
        case request, application, applicationVersion, applicationGroup
        case manifest, container, scratch
        case restrictedDownloadSizeRemaining, restrictedEssentialDownloadSizeRemaining
        case packs
    }

    init(reading node: JSONNode, hasPacks: Bool) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        func size(_ key: Key) throws(ManifestError) -> Int? {
            members.has(key) ? try members.number(key, in: 0...Int.max) : nil
        }
        request = ExtensionRequest(
            try members.choice(ContentRequest.self, for: .request),
            application: try members.text(.application) { text throws(ValueError) in
                try ApplicationID(text)
            },
            applicationVersion: try members.string(.applicationVersion),
            applicationGroup: try members.text(.applicationGroup) { text throws(ValueError) in
                try ApplicationGroupID(text)
            },
            manifest: try members.path(of: .manifest),
            container: try members.path(of: .container),
            scratch: try members.path(of: .scratch)
        )
        request.restrictedDownloadSizeRemaining = try size(.restrictedDownloadSizeRemaining)
        request.restrictedEssentialDownloadSizeRemaining = try size(
            .restrictedEssentialDownloadSizeRemaining
        )
        guard hasPacks else { return }
        request.packs = try members.values(
            ExtensionPackDocument.self,
            for: .packs,
            expected: "an array of packs",
            atMost: ManifestLimits.packs
        ).map(\.pack)
    }
}

/// JSON form of a pack in a message.
private struct ExtensionPackDocument: JSONReadable {
    var pack: ExtensionPack

    private enum Key: String, CodingKey {
        case id, version, policy, downloadSize, installedSize, stagedVersion, isProposed, urls
        case userInfo
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        pack = ExtensionPack(
            id: try members.text(.id) { text throws(ValueError) in try PackID(text) },
            version: try members.number(.version, in: 1...Int.max),
            policy: try members.value(PolicyDocument.self, for: .policy).policy,
            downloadSize: try members.byteCount(
                .downloadSize,
                atMost: ManifestLimits.archiveSize
            ),
            installedSize: try members.byteCount(
                .installedSize,
                atMost: ManifestLimits.installedSize
            )
        )
        if members.has(.stagedVersion) {
            pack.stagedVersion = try members.number(.stagedVersion, in: 1...Int.max)
        }
        pack.isProposed = try members.boolean(.isProposed)
        pack.urls = try members.strings(.urls, atMost: ManifestLimits.baseURLs)
        if members.has(.userInfo) {
            pack.userInfo = try members.node(.userInfo, expected: "a value").value.text
        }
    }
}

extension ExtensionRequest {
    /// Members common to all messages.
    var members: [JSONTree.Member] {
        func number(_ value: Int?) -> JSONTree { value.map { .integer(Int64($0)) } ?? .null }
        return [
            .init("request", .string(request.rawValue)),
            .init("application", .string(application.text)),
            .init("applicationVersion", .string(applicationVersion)),
            .init("applicationGroup", .string(applicationGroup.text)),
            .init("manifest", .string(manifest.string)),
            .init("container", .string(container.string)),
            .init("scratch", .string(scratch.string)),
            .init("restrictedDownloadSizeRemaining", number(restrictedDownloadSizeRemaining)),
            .init(
                "restrictedEssentialDownloadSizeRemaining",
                number(restrictedEssentialDownloadSizeRemaining)
            ),
        ]
    }
}

extension ExtensionPack {
    fileprivate init(
        id: PackID,
        version: Int,
        policy: DownloadPolicy,
        downloadSize: ByteCount,
        installedSize: ByteCount
    ) {
        self.id = id
        self.version = version
        self.policy = policy
        self.downloadSize = downloadSize
        self.installedSize = installedSize
        stagedVersion = nil
        isProposed = false
        urls = []
        userInfo = nil
    }

    /// JSON form of the pack in a message.
    var tree: JSONTree {
        .members(
            ("id", .string(id.text)),
            ("version", .integer(Int64(version))),
            ("policy", policy.tree),
            ("downloadSize", .integer(downloadSize.rawValue)),
            ("installedSize", .integer(installedSize.rawValue)),
            ("stagedVersion", stagedVersion.map { .integer(Int64($0)) } ?? .null),
            ("isProposed", .boolean(isProposed)),
            ("urls", .array(urls.map { .string($0) })),
            ("userInfo", userInfo.map(Self.tree(ofUserInfo:)))
        )
    }

    /// Converts a pack's user info to JSON; text that is not JSON becomes a string.
    private static func tree(ofUserInfo text: String) -> JSONTree {
        var parser = JSONParser(Array(text.utf8))
        do throws(ManifestError) {
            return try parser.document()
        } catch {
            return .string(text)
        }
    }
}

extension DownloadPolicy {
    /// JSON form of the policy, as in manifests.
    fileprivate var tree: JSONTree {
        switch self {
        case .essential(let events): .members(("essential", Self.tree(of: events)))
        case .prefetch(let events): .members(("prefetch", Self.tree(of: events)))
        case .onDemand: .members(("onDemand", .object([])))
        }
    }

    private static func tree(of events: Set<InstallationEvent>) -> JSONTree {
        let names = InstallationEvent.allCases.filter(events.contains)
        return .members(
            ("installationEventTypes", .array(names.map { .string($0.rawValue) }))
        )
    }
}
