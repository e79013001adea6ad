extension Manifest {
    /// Returns the URLs of a resource that the manifest names, in the order in which to try them.
    ///
    /// An absolute URL is returned as it is. A relative one is resolved (RFC 3986, section 5) against each of
    /// ``baseURLs`` or, without these, against `manifestURL`: the URL from which the manifest was downloaded.
    /// Equal URLs are listed once.
    public func urls(for url: String, manifestURL: String) -> [String] {
        let reference = URLReference(url)
        if reference.scheme != nil { return [url] }
        var urls: [String] = []
        for base in baseURLs.isEmpty ? [manifestURL] : baseURLs {
            let url = URLReference(base).resolving(reference).text
            if !urls.contains(url) { urls.append(url) }
        }
        return urls
    }

    /// Returns the URLs of a bundle of an indexed pack, in the order in which to try them.
    public func urls(forBundle digest: Digest, of index: PackIndex, manifestURL: String) -> [String]
    {
        urls(of: "../b/\(digest)", beside: index, manifestURL: manifestURL)
    }

    /// Returns the URLs of a delta set of an indexed pack, in the order in which to try them.
    public func urls(
        forDeltaSet digest: Digest,
        of index: PackIndex,
        manifestURL: String
    ) -> [String] {
        urls(of: "../d/\(digest)", beside: index, manifestURL: manifestURL)
    }

    private func urls(of object: String, beside index: PackIndex, manifestURL: String) -> [String] {
        let reference = URLReference(object)
        return urls(for: index.url, manifestURL: manifestURL).map {
            URLReference($0).resolving(reference).text
        }
    }
}
