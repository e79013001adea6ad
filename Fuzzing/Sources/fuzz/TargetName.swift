/// The names of the targets.
enum TargetName: String, CaseIterable {
    case archive
    case delta
    case http
    case index
    case json
    case manifest
    case metadata
    case record
    case settings
    case websocket

    /// The parser, its properties and its seeds.
    var type: any FuzzTarget.Type {
        switch self {
        case .archive: ArchiveTarget.self
        case .delta: DeltaTarget.self
        case .http: HTTPTarget.self
        case .index: IndexTarget.self
        case .json: JSONTarget.self
        case .manifest: ManifestTarget.self
        case .metadata: MetadataTarget.self
        case .record: RecordTarget.self
        case .settings: SettingsTarget.self
        case .websocket: WebSocketTarget.self
        }
    }

    /// The function that libFuzzer calls with each input: it returns 0, or does not return.
    var callback: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt {
        switch self {
        case .archive: { unsafe test(ArchiveTarget.self, $0, $1) }
        case .delta: { unsafe test(DeltaTarget.self, $0, $1) }
        case .http: { unsafe test(HTTPTarget.self, $0, $1) }
        case .index: { unsafe test(IndexTarget.self, $0, $1) }
        case .json: { unsafe test(JSONTarget.self, $0, $1) }
        case .manifest: { unsafe test(ManifestTarget.self, $0, $1) }
        case .metadata: { unsafe test(MetadataTarget.self, $0, $1) }
        case .record: { unsafe test(RecordTarget.self, $0, $1) }
        case .settings: { unsafe test(SettingsTarget.self, $0, $1) }
        case .websocket: { unsafe test(WebSocketTarget.self, $0, $1) }
        }
    }
}

private func test(
    _ target: any FuzzTarget.Type,
    _ data: UnsafePointer<UInt8>?,
    _ count: Int
) -> CInt {
    target.test(unsafe Array(UnsafeBufferPointer(start: data, count: count)))
    return 0
}
